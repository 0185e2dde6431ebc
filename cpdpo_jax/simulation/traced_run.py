"""A complete run as one traced function of lanes, with curves at the checkpoints.

The counterpart of `blocks` for programs compiled by the user: `make_train` maps it over lanes.
"""

from __future__ import annotations

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.kernels.loops import layer, with_layer
from cpdpo_jax.kernels.tracing import mark_varying
from cpdpo_jax.learners.base import Learner
from cpdpo_jax.simulation import compiled_loop
from cpdpo_jax.simulation.compiled_loop import LaneInputs, LoopState
from cpdpo_jax.simulation.curves import BlockCurves, at_checkpoint
from cpdpo_jax.simulation.lanes import block_sizes


@jax.numpy_rank_promotion("allow")  # the batch trails: [B] with [L,S,A,B] is intended
def run_lanes(learner: Learner, noise: str, checkpoints: tuple[int, ...], lanes: LaneInputs) -> BlockCurves:
    """Run all episodes up to the last checkpoint; arrays have a trailing axis B, or 1 for all lanes.

    Lanes run in blocks that fit the cache, one after the other, padded as in `simulate`: results are bit-identical
    whatever other lanes run.
    """
    lanes = jax.lax.optimization_barrier(
        mark_varying(lanes)
    )  # else XLA computes with constants, and rounds differently
    lanes, count = _broadcast(lanes)
    sizes = block_sizes(learner, lanes.problem.action_mask.shape[:3], count, workers=1)
    total = sizes.blocks * sizes.width
    lanes = jax.tree.map(lambda leaf: _pad(leaf, total) if _has_lanes(leaf, count) else leaf, lanes)
    if sizes.blocks == 1:
        curves = _run_block(learner, noise, checkpoints, lanes)
    else:
        leaves, structure = jax.tree.flatten(lanes)
        is_split = [_has_lanes(leaf, total) for leaf in leaves]

        def run_rows(rows: list[jax.Array]) -> BlockCurves:
            remaining = iter(rows)
            parts = [next(remaining) if split else leaf for leaf, split in zip(leaves, is_split, strict=True)]
            return _run_block(learner, noise, checkpoints, structure.unflatten(parts))

        rows = [_blocks_first(leaf, sizes.blocks) for leaf, split in zip(leaves, is_split, strict=True) if split]
        curves = jax.tree.map(_blocks_last, jax.lax.map(run_rows, rows))
    return jax.tree.map(lambda leaf: leaf[..., :count], curves)


def _broadcast(lanes: LaneInputs) -> tuple[LaneInputs, int]:
    """All arrays broadcast to the number of lanes, and that number; a model shared by all lanes is not broadcast."""
    count = max(leaf.shape[-1] for leaf in jax.tree.leaves(lanes))

    def broadcast(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*leaf.shape[:-1], count)), tree)

    shared = all(leaf.shape[-1] == 1 for leaf in jax.tree.leaves(lanes.model))
    model = lanes.model if shared else broadcast(lanes.model)
    return broadcast(lanes._replace(model=None))._replace(model=model), count


def _has_lanes(leaf: jax.Array, count: int) -> bool:
    return leaf.shape[-1] == count


def _pad(leaf: jax.Array, total: int) -> jax.Array:
    missing = total - leaf.shape[-1]
    last = jnp.broadcast_to(leaf[..., -1:], (*leaf.shape[:-1], missing))
    return jnp.concatenate([leaf, last], axis=-1) if missing else leaf


def _blocks_first(leaf: jax.Array, blocks: int) -> jax.Array:
    return jnp.moveaxis(leaf.reshape(*leaf.shape[:-1], blocks, -1), -2, 0)


def _blocks_last(leaf: jax.Array) -> jax.Array:
    moved = jnp.moveaxis(leaf, 0, -2)
    return moved.reshape(*moved.shape[:-2], -1)


def _run_block(learner: Learner, noise: str, checkpoints: tuple[int, ...], lanes: LaneInputs) -> BlockCurves:
    """Run a block: the episodes up to each checkpoint, then its curves."""
    ends = np.asarray(checkpoints, np.int32)
    begins = np.concatenate([np.zeros(1, np.int32), ends[:-1]])
    state = compiled_loop.begin(learner, noise, lanes)
    like = jax.eval_shape(_point, state, ends[0])
    points = jax.tree.map(lambda leaf: jnp.zeros((len(ends), *leaf.shape), leaf.dtype), like)

    def up_to_checkpoint(c: jax.Array, carry: tuple[LoopState, Any]) -> tuple[LoopState, Any]:
        state, points = carry
        first, last = layer(jnp.asarray(begins), c), layer(jnp.asarray(ends), c)
        state = compiled_loop.run_episodes(learner, noise, lanes, state, first, last)
        return state, jax.tree.map(lambda stored, value: with_layer(stored, c, value), points, _point(state, last))

    state, points = jax.lax.fori_loop(0, len(ends), up_to_checkpoint, mark_varying((state, points)))
    return BlockCurves(
        **points,
        policy=learner.policy(lanes.problem, lanes.hyper, state.learner),
        slater_margin=lanes.problem.slater_margin,
        first_non_finite=state.first_non_finite + 1,
        done=cast(Any, jnp.full(state.first_non_finite.shape, checkpoints[-1], jnp.int32)),
    )


def _point(state: LoopState, t: Any) -> dict[str, Any]:
    return at_checkpoint(state, jnp.asarray(t).astype(state.gaps.dtype))
