"""Blocks of lanes: cutting a run into pieces that fit the cache, and taking one piece through time.

Results do not depend on how lanes are cut into blocks: draws are a function of the lane alone, and every block is
padded to a multiple of `LANE_MULTIPLE`, so that each lane is computed by vector code. Learners that run on the host
have narrow blocks without padding.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common.types import CMDP
from cpdpo_jax.envs.build import stack, unstack
from cpdpo_jax.learners import settings
from cpdpo_jax.learners.base import Learner, Problem
from cpdpo_jax.learners.fixed import KnownPolicy, plug_in_slater_margin
from cpdpo_jax.simulation import compiled_loop, host_loop, monitor, randomness
from cpdpo_jax.simulation.curves import BlockCurves, check_policy, empty_curves, write
from cpdpo_jax.simulation.rollout import make_model

LANE_MULTIPLE = 32  # narrower blocks are unrolled by the compiler, and then rounded otherwise
HOST_LANES = 4  # most lanes of a block that runs on the host: small, so that the cores end together
CALL_SECONDS = 0.5  # of one call to the device: progress and Ctrl-C come at this rhythm
KEEP_SECONDS = 5.0  # between snapshots of a stored run


class LaneIndex(NamedTuple):
    """Which run each lane of a block is, [B] each."""

    instance: np.ndarray
    setting: np.ndarray  # position
    seed: np.ndarray  # the seed's number
    real: np.ndarray  # bool, False for padding


class Phase(NamedTuple):
    """A stretch of a run with one start of the learner: known T has one, doubling and exploring first have several."""

    learner: Learner
    first: int  # episodes first..last-1
    last: int
    horizon: int  # the T of the learner's constants
    explores: bool = False  # rho is estimated from this phase


@dataclass(frozen=True)
class LearnerPlan:
    """One learner's part of a run: all that its blocks share, on the host in float64."""

    phases: list[Phase]
    cmdp: CMDP  # a batch of instances
    problem: Problem  # [instances]
    settings: list[settings.Setting]
    optimum: np.ndarray  # [instances]
    truth: monitor.Truth | None  # [instances]; given: watch the analysis
    key: int
    dtype: Any
    checkpoints: np.ndarray  # episodes, increasing; the last is the end
    known_policy: np.ndarray | None = None  # [L,S,A,instances] for a learner that `plays` one
    first_instance: int = 0  # position of the first instance in the batch it was taken from: its luck depends on it

    @property
    def on_host(self) -> bool:
        """Nothing of it is compiled."""
        return all(phase.learner.host for phase in self.phases)

    @cached_property
    def calls(self) -> list[int]:
        """Where a call to the device must end: the checkpoints and the ends of the phases."""
        return sorted({*map(int, self.checkpoints), *(phase.last for phase in self.phases)})


class Snapshot(NamedTuple):
    """A block in the middle of its run, on the host: enough to go on from, bit for bit. There is no random state."""

    episode: int  # episodes done
    believed: np.ndarray  # [B] the Slater margin as the learner believes it
    record: BlockCurves
    run: list[
        np.ndarray
    ]  # the leaves of `compiled_loop.LoopState`: the learner's whole state, the sums and what they lost


def select_instance(work: LearnerPlan, instance: int, setting: int) -> LearnerPlan:
    """One instance and one setting of a work; the instance keeps its luck."""

    def cut(array: Any) -> np.ndarray:
        return np.asarray(array)[..., [instance]]

    return replace(
        work,
        cmdp=stack([unstack(work.cmdp)[instance]]),
        problem=jax.tree.map(cut, work.problem),
        settings=[work.settings[setting]],
        optimum=cut(work.optimum),
        truth=None if work.truth is None else jax.tree.map(cut, work.truth),
        known_policy=None if work.known_policy is None else cut(work.known_policy),
        first_instance=work.first_instance + instance,
    )


def make_lanes(work: LearnerPlan, lane: LaneIndex, phase: Phase, slater_margin: np.ndarray) -> compiled_loop.LaneInputs:
    """The device arrays of a block in a phase; `slater_margin` [B] is the learner's belief.

    For a learner that runs on the host NumPy arrays in float64, whatever the run's type.
    """
    if phase.learner.host:
        with jax.enable_x64(True):
            lanes = _make_lanes(replace(work, dtype=np.dtype(np.float64)), lane, phase, slater_margin)
        return jax.tree.map(np.asarray, lanes)
    return _make_lanes(work, lane, phase, slater_margin)


def _make_lanes(
    work: LearnerPlan, lane: LaneIndex, phase: Phase, slater_margin: np.ndarray
) -> compiled_loop.LaneInputs:
    def put(array: Any) -> jax.Array:
        array = np.asarray(array)
        return jnp.asarray(array if array.dtype == bool else array.astype(work.dtype))

    def spread(array: Any) -> np.ndarray:
        return np.asarray(array)[..., lane.instance]

    problem = jax.tree.map(spread, work.problem)._replace(slater_margin=slater_margin)
    problem = problem._replace(episodes=np.full_like(problem.episodes, phase.horizon))
    chosen = [settings.PLAIN] * len(work.settings) if phase.explores else work.settings
    options = [settings.resolve(setting, phase.learner, problem) for setting in chosen]
    hyper = jax.tree.map(lambda *of: np.stack(of)[lane.setting, np.arange(len(lane.setting))], *options)
    if work.known_policy is not None and not phase.explores:
        hyper = KnownPolicy(spread(work.known_policy))  # pyright: ignore[reportArgumentType]
    single = work.cmdp.batch_shape[0] == 1  # one model for all lanes: a trailing axis of size 1
    return compiled_loop.LaneInputs(
        model=make_model(work.cmdp, None if single else lane.instance, work.dtype),
        problem=jax.tree.map(put, problem),
        hyper=jax.tree.map(put, hyper),
        keys=jnp.asarray(randomness.lane_keys(work.key, work.first_instance + lane.instance, lane.seed)),
        optimum=put(spread(work.optimum)),
        truth=None if work.truth is None else jax.tree.map(lambda a: put(spread(a)), work.truth),
    )


def compile_block(work: LearnerPlan, lane: LaneIndex) -> None:
    """Compile what the blocks of a learner run, by a call of no episodes."""
    for phase in work.phases[:2]:  # later phases have the shapes of the second
        lanes = make_lanes(work, lane, phase, np.asarray(work.problem.slater_margin)[lane.instance])
        advance(phase.learner, work.cmdp.noise, lanes, begin(phase.learner, lanes), 0, 0)


def run_block(
    work: LearnerPlan,
    lane: LaneIndex,
    progress: Callable[[int], None] = lambda n: None,
    stop: Callable[[], bool] = lambda: False,
    *,
    start: Snapshot | None = None,
    keep: Callable[[Snapshot], None] | None = None,
    every: float = KEEP_SECONDS,
) -> BlockCurves:
    """All episodes of a block, or those after `start`; how it is cut into calls and snapshots changes no bit of it.

    `progress` is told of every n episodes done; `stop` asks whether to end early; `keep` is handed a snapshot every
    `every` seconds, and when stopped.
    """
    record = empty_curves(len(work.checkpoints), work.cmdp, len(lane.seed))
    t, believed = 0, np.asarray(work.problem.slater_margin)[lane.instance]
    if start is not None:
        t, believed, record = start.episode, start.believed, start.record
    phase = next(one for one in work.phases if t <= one.last)
    lanes = make_lanes(work, lane, phase, believed)
    run = begin(phase.learner, lanes)
    if start is not None:
        run = _restored(run, start.run)

    def snapshot() -> Snapshot:
        return Snapshot(t, believed, record, [np.asarray(leaf) for leaf in jax.tree.leaves(run)])

    size, kept = 32, time.perf_counter()
    for end in work.calls:
        if end < t:
            continue
        if t == phase.last < end:  # the learner starts afresh, the sums go on
            if phase.explores:
                believed = plug_in_slater_margin(lanes.problem, run.state)
            phase = work.phases[work.phases.index(phase) + 1]
            lanes = make_lanes(work, lane, phase, believed)
            run = begin(phase.learner, lanes)._replace(sums=run.sums, carry=run.carry)
        while t < end and not stop():
            n = min(size, end - t)
            started = time.perf_counter()
            run = jax.block_until_ready(advance(phase.learner, work.cmdp.noise, lanes, run, t, t + n))
            if n == size:  # a shorter call says little about the rhythm
                size = max(1, min(4 * n, int(n * CALL_SECONDS / max(time.perf_counter() - started, 1e-6))))
            t += n
            record.first_bad[:] = np.asarray(run.first_bad) + 1
            progress(n)
            if keep is not None and time.perf_counter() - kept > every:
                keep(snapshot())
                kept = time.perf_counter()
        if t < end:
            break
        if t in work.checkpoints:
            write(record, int(np.searchsorted(work.checkpoints, t)), t, run)
        if (record.first_bad > 0).any():
            break
    if keep is not None and stop():
        keep(snapshot())
    record.policy[...] = _policy(phase.learner, lanes, run.state)
    if not (record.first_bad > 0).any():
        check_policy(record.policy, np.asarray(lanes.problem.action_mask), phase.learner.name)
    record.slater_margin[...] = believed
    record.done[...] = t
    return record


def begin(learner: Learner, lanes: compiled_loop.LaneInputs) -> compiled_loop.LoopState:
    """Before the first episode, on the device or on the host."""
    return host_loop.begin(learner, lanes) if learner.host else _compiled_begin(learner, lanes)


def advance(
    learner: Learner, noise: str, lanes: compiled_loop.LaneInputs, run: compiled_loop.LoopState, first: int, last: int
) -> compiled_loop.LoopState:
    """Episodes first..last-1, on the device or on the host."""
    return (host_loop if learner.host else compiled_loop).advance(learner, noise, lanes, run, first, last)


def _policy(learner: Learner, lanes: compiled_loop.LaneInputs, state: Any) -> Any:
    if learner.host:
        return host_loop.policy(learner, lanes, state)
    return _compiled_policy(learner, lanes.problem, lanes.hyper, state)


# one small program each instead of one per operation: a third of a second less before the first episode
_compiled_begin = jax.jit(compiled_loop.begin, static_argnums=0)


@partial(jax.jit, static_argnums=0)
def _compiled_policy(learner: Learner, problem: Problem, hyper: Any, state: Any) -> jax.Array:
    return learner.policy(problem, hyper, state)


def _restored(run: compiled_loop.LoopState, leaves: list[np.ndarray]) -> compiled_loop.LoopState:
    """A run of the same kind with these leaves."""
    like, kind = jax.tree.flatten(run)
    wanted = [(leaf.shape, np.dtype(leaf.dtype)) for leaf in like]
    if [(leaf.shape, leaf.dtype) for leaf in leaves] != wanted:
        raise ValueError("the snapshot is of another learner, environment or version.")
    put = np.array if isinstance(like[0], np.ndarray) else jnp.array
    return jax.tree.unflatten(kind, [put(leaf) for leaf in leaves])
