"""Lanes: the (instance, setting, seed) of each run in a block, how a plan is cut into blocks, and their arrays.

Results do not depend on how lanes are cut into blocks: draws are a function of the lane alone, and every block is
padded to a multiple of `LANE_MULTIPLE`, or to one vector for this package's learners, so that each lane is computed by
vector code (tests compare blocks of 16, 32 and 64 lanes, bit by bit). Learners that run on the host have narrow blocks
without padding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.kernels.cpu.choice import LANES as VECTOR
from cpdpo_jax.kernels.cpu.choice import WIDEST_OF_XLA
from cpdpo_jax.kernels.cpu.switch import cpu_acceleration_enabled
from cpdpo_jax.learners import settings
from cpdpo_jax.learners.fixed import KnownPolicy
from cpdpo_jax.simulation import randomness
from cpdpo_jax.simulation.compiled_loop import LaneInputs
from cpdpo_jax.simulation.plan import LearnerPlan, Phase
from cpdpo_jax.simulation.programs import is_ours
from cpdpo_jax.simulation.rollout import make_model

LANE_MULTIPLE = 32  # a learner that was not tested with 16 might be rounded otherwise there
HOST_LANES = 4  # most lanes of a block that runs on the host: small, so that the cores end together
CPU_LANES = 64  # of a block on a CPU: 32 cost up to a half more per lane, 128 no less
CPU_COUNTS = 2**23  # bytes of their counts that the caches keep; with more, 32 lanes take half of the time per lane
DEVICE_LANES = 4096  # lanes of a block on an accelerator


class LaneIndex(NamedTuple):
    """Which run each lane of a block is, [B] each."""

    instance: np.ndarray
    setting: np.ndarray  # position
    seed: np.ndarray  # the seed's number
    real: np.ndarray  # bool, False for padding

    @property
    def count(self) -> int:
        """How many lanes are real: padding does not count."""
        return int(self.real.sum())


def describe_lane(plan: LearnerPlan, lane: LaneIndex, b: int) -> str:
    """A lane in words, for errors."""
    instance = int(lane.instance[b])
    return (
        f"seed {lane.seed[b]} on instance {plan.cmdp.names[instance]!r} (number {plan.first_instance + instance}), "
        f"setting {plan.settings[lane.setting[b]].label!r}"
    )


def padded(instance: np.ndarray, setting: np.ndarray, seed: np.ndarray, width: int) -> LaneIndex:
    """A block of `width` lanes, those that are missing repeat the last one."""
    real = np.arange(width) < len(seed)
    lane = np.minimum(np.arange(width), len(seed) - 1)
    return LaneIndex(instance[lane], setting[lane], seed[lane], real)


def cut(plan: LearnerPlan, seeds: np.ndarray, block: int | None, workers: int, platform: str) -> list[LaneIndex]:
    """All lanes of a learner, instance by instance, in blocks of one width, padded with their last lane.

    Blocks on the host are narrow, and none is padded. Where padding costs little, few lanes go to all workers.
    """
    shape = (plan.cmdp.batch_shape[0], len(plan.settings), len(seeds))
    instance, setting, position = (index.ravel() for index in np.indices(shape))
    seed, count = seeds[position], len(position)
    width, share = _width(plan, count, block, workers, platform)
    blocks = []
    for first in range(0, count, share):
        lanes = slice(first, min(first + share, count))
        block_width = lanes.stop - lanes.start if plan.on_host else width
        blocks.append(padded(instance[lanes], setting[lanes], seed[lanes], block_width))
    return blocks


def _width(plan: LearnerPlan, count: int, block: int | None, workers: int, platform: str) -> tuple[int, int]:
    """The lanes of a block, and how many of them are to be real."""
    if plan.on_host:
        width = block or min(HOST_LANES, math.ceil(count / workers))
        return width, width
    if block is None:
        width = whole_rounds(min(lanes_that_fit(plan.cmdp.reward.shape[:3], platform), math.ceil(count / workers)))
    else:
        width = math.ceil(block / LANE_MULTIPLE) * LANE_MULTIPLE
    if block is None and platform == "cpu":
        real = min(width, math.ceil(count / workers))
        if real <= VECTOR and is_ours(plan.learner) and cpu_acceleration_enabled():
            return VECTOR, VECTOR if plan.cmdp.n_states <= WIDEST_OF_XLA else real
        if plan.cmdp.n_states > WIDEST_OF_XLA:  # padding costs little there: see `kernels.cpu`
            return width, real
    return width, width


def bytes_per_lane(shape: Sequence[int]) -> int:
    """About what a lane takes: counts, confidence sets, sums and scratch of an instance of shape (L, S, A)."""
    n_layers, n_states, n_actions = shape
    return 16 * n_layers * n_states * n_actions * (n_states + 4)


def lanes_that_fit(shape: Sequence[int], platform: str) -> int:
    """The most lanes of a block: on a CPU what its caches hold, on an accelerator what half of its memory does."""
    if platform == "cpu":
        n_layers, n_states, n_actions = shape
        return CPU_LANES if 4 * CPU_LANES * n_layers * n_states**2 * n_actions <= CPU_COUNTS else LANE_MULTIPLE
    memory = _device_memory()
    return DEVICE_LANES if memory is None else min(DEVICE_LANES, memory // 2 // bytes_per_lane(shape))


def lanes_that_fit_in_words(shape: Sequence[int], platform: str) -> str:
    """Where `lanes_that_fit` comes from on an accelerator."""
    memory, each = _device_memory(), bytes_per_lane(shape)
    if memory is None:
        return f"{platform}: at most {DEVICE_LANES:,}, the device does not say what memory it has"
    return f"{platform}: at most {DEVICE_LANES:,}, and half of {memory / 1e9:.0f} GB holds {memory // 2 // each:,}"


def _device_memory() -> int | None:
    """Bytes that jax may use on its device; None where it does not say."""
    return (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")


def whole_rounds(lanes: int) -> int:
    """At most so many lanes, but a multiple of `LANE_MULTIPLE`, or of twice that: whole rounds of vector code."""
    multiple = 2 * LANE_MULTIPLE if lanes >= 2 * LANE_MULTIPLE else LANE_MULTIPLE
    return max(1, lanes // multiple) * multiple


def total(blocks: Sequence[LaneIndex]) -> int:
    """How many real lanes some blocks have."""
    return sum(block.count for block in blocks)


def lane_inputs(plan: LearnerPlan, lane: LaneIndex, phase: Phase, slater_margin: np.ndarray) -> LaneInputs:
    """The device arrays of a block in a phase; `slater_margin` [B] is the learner's belief.

    For a learner that runs on the host NumPy arrays in float64, whatever the run's type.
    """
    if not phase.learner.compiled:
        with jax.enable_x64(True):
            lanes = _lane_inputs(replace(plan, dtype=np.dtype(np.float64)), lane, phase, slater_margin)
        return jax.tree.map(np.asarray, lanes)
    return _lane_inputs(plan, lane, phase, slater_margin)


def _lane_inputs(plan: LearnerPlan, lane: LaneIndex, phase: Phase, slater_margin: np.ndarray) -> LaneInputs:
    def put(array: Any) -> jax.Array:
        array = np.asarray(array)
        return jnp.asarray(array if array.dtype == bool else array.astype(plan.dtype))

    def spread(array: Any) -> np.ndarray:
        return np.asarray(array)[..., lane.instance]

    problem = jax.tree.map(spread, plan.problem)._replace(slater_margin=slater_margin)
    problem = problem._replace(episodes=np.full_like(problem.episodes, phase.horizon))
    chosen = [settings.PLAIN] * len(plan.settings) if phase.explores else plan.settings
    choices = [settings.resolve(setting, phase.learner, problem) for setting in chosen]
    hyper = jax.tree.map(lambda *values: np.stack(values)[lane.setting, np.arange(len(lane.setting))], *choices)
    if plan.known_policy is not None and not phase.explores:
        hyper = KnownPolicy(spread(plan.known_policy))  # pyright: ignore[reportArgumentType]
    single = plan.cmdp.batch_shape[0] == 1  # one model for all lanes: a trailing axis of size 1
    return LaneInputs(
        model=make_model(plan.cmdp, None if single else lane.instance, plan.dtype),
        problem=jax.tree.map(put, problem),
        hyper=jax.tree.map(put, hyper),
        keys=jnp.asarray(randomness.lane_keys(plan.key, plan.first_instance + lane.instance, lane.seed)),
        optimum=put(spread(plan.optimum)),
        truth=None if plan.truth is None else jax.tree.map(lambda array: put(spread(array)), plan.truth),
    )
