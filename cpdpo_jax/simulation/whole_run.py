"""A whole run as one traced function of lanes: from the first episode to the last, curves at the checkpoints.

What `blocks` does from the host, call by call, for programs that the user compiles: `make_train` maps it over lanes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common.types import Array
from cpdpo_jax.kernels import layer, with_layer
from cpdpo_jax.kernels.cpu.single_function import single_cpu_function
from cpdpo_jax.kernels.target import target_platform
from cpdpo_jax.learners.base import Learner
from cpdpo_jax.simulation import compiled_loop
from cpdpo_jax.simulation.compiled_loop import LaneInputs, LoopState
from cpdpo_jax.simulation.lanes import LANE_MULTIPLE, lanes_that_fit, whole_rounds
from cpdpo_jax.simulation.rollout import summed


class Points(NamedTuple):
    """What is kept at the checkpoints, in the run's type; C checkpoints lead, lanes trail."""

    strong: Array  # [C,1+M,B] cumulative: strong regret, then strong violations
    weak: Array  # [C,1+M,B]
    multiplier_mean: Array  # [C,M,B] over the episodes so far
    multiplier: Array  # [C,M,B] of the last episode
    gaps: Array  # [C,1+M,B] of the last episode
    epochs: Array  # [C,B] int32
    failures: Array  # [C,events,B] int32; None unless watched
    slack: Array  # [C,events,B]; None unless watched
    watched: Array  # [C,sums,B]; None unless watched


class LaneCurves(NamedTuple):
    """What lanes have to tell at the end."""

    points: Points
    policy: Array  # [L,S,A,B] after the last episode
    first_bad: Array  # [B] int32, first episode (from 1) with a value that is not finite; 0: none


def whole_run(learner: Learner, noise: str, checkpoints: tuple[int, ...], lanes: LaneInputs) -> LaneCurves:
    """All episodes up to the last checkpoint of lanes whose arrays have a trailing axis B, or 1 for all of them.

    Lanes run in blocks that fit the cache, one block after the other, padded as `simulate` pads them: a lane's bits
    depend neither on its neighbours nor on their number.
    """
    lanes = jax.lax.optimization_barrier(lanes)  # not constants that XLA would compute with, and round otherwise
    lanes, count = _spread(lanes)
    blocks, width = cut_lanes(lanes.problem.action_mask.shape[:3], count)
    total = blocks * width

    def block(lanes: LaneInputs) -> LaneCurves:
        return _block(learner, summed(noise, checkpoints[-1]), checkpoints, lanes)

    lanes = jax.tree.map(lambda leaf: _padded(leaf, total) if leaf.shape[-1] == count else leaf, lanes)
    if blocks == 1:
        curves = block(lanes)
    else:
        apart = jax.tree.map(lambda leaf: leaf.shape[-1] == total, lanes)
        leaves, structure = jax.tree.flatten(lanes)
        is_cut = jax.tree.leaves(apart)

        def one(cut: list[jax.Array]) -> LaneCurves:
            given = iter(cut)
            return block(
                structure.unflatten([next(given) if c else leaf for leaf, c in zip(leaves, is_cut, strict=True)])
            )

        cut = [_blocks_first(leaf, blocks) for leaf, c in zip(leaves, is_cut, strict=True) if c]
        curves = jax.tree.map(_blocks_joined, jax.lax.map(one, cut))
    return jax.tree.map(lambda leaf: leaf[..., :count], curves)


def _spread(lanes: LaneInputs) -> tuple[LaneInputs, int]:
    """Every array with the trailing axis of all lanes, and their number; a model that all lanes share stays one."""
    count = max(leaf.shape[-1] for leaf in jax.tree.leaves(lanes))

    def spread(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*leaf.shape[:-1], count)), tree)

    shared = all(leaf.shape[-1] == 1 for leaf in jax.tree.leaves(lanes.model))
    model = lanes.model if shared else spread(lanes.model)
    return spread(lanes._replace(model=None))._replace(model=model), count


def cut_lanes(shape: Sequence[int], count: int) -> tuple[int, int]:
    """How many blocks so many lanes of shape (L, S, A) run in, and the lanes of each."""
    fits = whole_rounds(lanes_that_fit(shape, target_platform()))
    blocks = math.ceil(count / fits)
    return blocks, math.ceil(count / blocks / LANE_MULTIPLE) * LANE_MULTIPLE


def _padded(leaf: jax.Array, total: int) -> jax.Array:
    missing = total - leaf.shape[-1]
    last = jnp.broadcast_to(leaf[..., -1:], (*leaf.shape[:-1], missing))
    return jnp.concatenate([leaf, last], axis=-1) if missing else leaf


def _blocks_first(leaf: jax.Array, blocks: int) -> jax.Array:
    return jnp.moveaxis(leaf.reshape(*leaf.shape[:-1], blocks, -1), -2, 0)


def _blocks_joined(leaf: jax.Array) -> jax.Array:
    behind = jnp.moveaxis(leaf, 0, -2)
    return behind.reshape(*behind.shape[:-2], -1)


def _block(learner: Learner, noise: str, checkpoints: tuple[int, ...], lanes: LaneInputs) -> LaneCurves:
    """One block: for every checkpoint the episodes up to it, then what there is to tell."""
    ends = np.asarray(checkpoints, np.int32)
    begins = np.concatenate([np.zeros(1, np.int32), ends[:-1]])
    state = compiled_loop.begin(learner, lanes)
    one = compiled_loop.episode_of(learner, noise, lanes, state)
    points = jax.tree.map(lambda leaf: jnp.zeros((len(ends), *leaf.shape), leaf.dtype), _told(state, ends[0]))

    def up_to_checkpoint(c: jax.Array, carry: tuple[LoopState, Points]) -> tuple[LoopState, Points]:
        state, points = carry
        first, last = layer(jnp.asarray(begins), c), layer(jnp.asarray(ends), c)
        state = _episodes(one, first, last, state)
        return state, jax.tree.map(lambda kept, now: with_layer(kept, c, now), points, _told(state, last))

    (state, points), reads = single_cpu_function(
        lambda carry: jax.lax.fori_loop(0, len(ends), up_to_checkpoint, carry), (state, points)
    )
    state, points, _ = jax.lax.optimization_barrier((state, points, reads))  # what it reads must be in use after it
    return LaneCurves(points, learner.policy(lanes.problem, lanes.hyper, state.learner), state.first_bad + 1)


def _episodes(one: Callable[..., LoopState], first: jax.Array, last: jax.Array, state: LoopState) -> LoopState:
    """Episodes first..last-1; on an accelerator in loops of known length, and what is left over one by one."""
    stretch = compiled_loop.call_multiple()
    if stretch > 1:

        def stretches(i: jax.Array, state: LoopState) -> LoopState:
            times = first + i * stretch + jnp.arange(stretch, dtype=jnp.int32)
            return jax.lax.scan(lambda state, t: (one(state, t), None), state, times)[0]

        whole = (last - first) // stretch
        state, first = jax.lax.fori_loop(0, whole, stretches, state), first + whole * stretch
    return jax.lax.fori_loop(first, last, lambda t, state: one(state, t), state)


def _told(state: LoopState, t: Array) -> Points:
    """The sums so far; what rounding lost is put back, as far as the type holds it."""
    strong, weak, multipliers = jax.tree.map(jnp.subtract, state.sums, state.carry)
    watch = state.watch
    return Points(
        strong=strong,
        weak=weak,
        multiplier_mean=multipliers / t.astype(multipliers.dtype),
        multiplier=state.info.multipliers,
        gaps=state.gaps,
        epochs=state.info.epochs,
        failures=None if watch is None else watch.failures,
        slack=None if watch is None else watch.slack,
        watched=None if watch is None else watch.sums - watch.carry,
    )
