"""Lanes: the (instance, hparams, seed) of each run in a block, the division of a plan into blocks, and their arrays.

Results do not depend on the division into blocks. Draws are a function of the lane alone, and each block is padded to a
multiple of `LANE_MULTIPLE`, or to one vector for this package's learners, so that vector code computes every lane
(tests compare blocks of 16, 32 and 64 lanes, bit by bit). Learners on the host have narrow blocks without padding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.kernels.machines import programs
from cpdpo_jax.kernels.machines.sizes import HOST_LANES, LANE_MULTIPLE
from cpdpo_jax.learners.base import Learner, Problem
from cpdpo_jax.learners.fixed import KnownPolicy
from cpdpo_jax.learners.hparams import PLAIN, resolve
from cpdpo_jax.simulation import randomness
from cpdpo_jax.simulation.compiled_loop import LaneInputs
from cpdpo_jax.simulation.plan import LearnerPlan, Phase
from cpdpo_jax.simulation.rollout import make_model


class LaneIndex(NamedTuple):
    """The lanes of a block, [B] each."""

    instance: np.ndarray
    hparams: np.ndarray  # position
    seed: np.ndarray
    real: np.ndarray  # bool, False for padding

    @property
    def count(self) -> int:
        """The number of lanes without padding."""
        return int(self.real.sum())


def describe_lane(plan: LearnerPlan, block: LaneIndex, b: int) -> str:
    """A description of lane b of a block, for errors."""
    instance = int(block.instance[b])
    return (
        f"seed {block.seed[b]} on instance {plan.cmdp.names[instance]!r} (number {plan.first_instance + instance}), "
        f"hparams {plan.hparams[block.hparams[b]].label!r}"
    )


def pad_block(instance: np.ndarray, hparams: np.ndarray, seed: np.ndarray, width: int) -> LaneIndex:
    """A block of `width` lanes, padded with copies of the last one."""
    real = np.arange(width) < len(seed)
    source = np.minimum(np.arange(width), len(seed) - 1)
    return LaneIndex(instance[source], hparams[source], seed[source], real)


def split_into_blocks(plan: LearnerPlan, seeds: np.ndarray, block: int | None, workers: int) -> list[LaneIndex]:
    """All lanes of a learner, instance by instance, in blocks of equal width, padded with their last lane.

    Blocks on the host are narrow and not padded. Where padding is cheap, few lanes are still divided among all workers.
    """
    shape = (plan.cmdp.batch_shape[0], len(plan.hparams), len(seeds))
    instance, hparams, position = (index.ravel() for index in np.indices(shape))
    seed, count = seeds[position], len(position)
    if plan.on_host:
        width = block or min(HOST_LANES, math.ceil(count / workers))
        sizes = BlockSizes(math.ceil(count / width), width, width)
    elif block is not None:
        width = math.ceil(block / LANE_MULTIPLE) * LANE_MULTIPLE
        sizes = BlockSizes(math.ceil(count / width), width, width)
    else:
        sizes = block_sizes(plan.learner, plan.cmdp.reward.shape[:3], count, workers)
    blocks = []
    for first in range(0, count, sizes.real):
        lanes = slice(first, min(first + sizes.real, count))
        width = lanes.stop - lanes.start if plan.on_host else sizes.width
        blocks.append(pad_block(instance[lanes], hparams[lanes], seed[lanes], width))
    return blocks


class BlockSizes(NamedTuple):
    """The division of lanes into blocks."""

    blocks: int
    width: int  # lanes of each block, including padding
    real: int  # lanes of each block except the last, without padding


def block_sizes(learner: Learner, shape: Sequence[int], count: int, workers: int) -> BlockSizes:
    """Block sizes for `count` lanes of shape (L, S, A): the same number for each worker, each as large as fits.

    Blocks are padded to full vectors of a CPU: 16 lanes for the package's learners, which are bit-identical at that
    width, and `LANE_MULTIPLE` for others.
    """
    blocks = workers * math.ceil(count / (workers * programs.max_lanes(shape)))
    real = math.ceil(count / blocks)
    return BlockSizes(math.ceil(count / real), programs.padded_lanes(real, narrow=is_builtin(learner)), real)


def is_builtin(learner: Learner) -> bool:
    """Whether all traced functions of the learner belong to this package."""
    functions = (learner.init, learner.policy, learner.update)
    return all(str(getattr(function, "__module__", "")).startswith("cpdpo_jax.") for function in functions)


def lane_inputs(plan: LearnerPlan, block: LaneIndex, phase: Phase, slater_margin: np.ndarray) -> LaneInputs:
    """The device arrays of a block in a phase; `slater_margin` [B] is the one given to the learner.

    Learners on the host receive NumPy arrays in float64, whatever the type of the run.
    """
    if not phase.learner.compiled:
        with jax.enable_x64(True):
            lanes = _lane_inputs(replace(plan, dtype=np.dtype(np.float64)), block, phase, slater_margin)
        return jax.tree.map(np.asarray, lanes)
    return _lane_inputs(plan, block, phase, slater_margin)


def _lane_inputs(plan: LearnerPlan, block: LaneIndex, phase: Phase, slater_margin: np.ndarray) -> LaneInputs:
    def put(array: Any) -> jax.Array:
        array = np.asarray(array)
        return jnp.asarray(array if array.dtype == bool else array.astype(plan.dtype))

    def spread(array: Any) -> np.ndarray:
        return np.asarray(array)[..., block.instance]

    problems = [jax.tree.map(lambda array, i=i: np.asarray(array)[..., i], plan.problems[s])
            for s, i in zip(block.hparams, block.instance, strict=True)]  # fmt: skip
    problem: Problem = jax.tree.map(lambda *lanes: np.stack(lanes, axis=-1), *problems)
    problem = problem._replace(slater_margin=slater_margin, episodes=np.full(len(block.seed), float(phase.horizon)))
    chosen = [PLAIN] * len(plan.hparams) if phase.explores else plan.hparams
    choices = [resolve(choice, phase.learner, problem) for choice in chosen]
    hyper = jax.tree.map(lambda *values: np.stack(values)[block.hparams, np.arange(len(block.hparams))], *choices)
    if plan.known_policy is not None and not phase.explores:
        hyper = KnownPolicy(spread(plan.known_policy))  # pyright: ignore[reportArgumentType]
    single = plan.cmdp.batch_shape[0] == 1  # one model for all lanes: trailing axis of size 1
    return LaneInputs(
        model=make_model(plan.cmdp, None if single else block.instance, plan.dtype),
        problem=jax.tree.map(put, problem),
        hyper=jax.tree.map(put, hyper),
        keys=jnp.asarray(randomness.lane_keys(plan.key, plan.first_instance + block.instance, block.seed)),
        optimum=put(spread(plan.optimum)),
        truth=None if plan.truth is None else jax.tree.map(lambda array: put(spread(array)), plan.truth),
    )
