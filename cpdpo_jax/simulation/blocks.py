"""A block of lanes taken through time: phases, calls to the device, checkpoints and snapshots."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common.machine import no_garbage_collection
from cpdpo_jax.learners.base import Learner
from cpdpo_jax.learners.checking import shape_faults
from cpdpo_jax.simulation import compiled_loop, host_loop, watched_loop
from cpdpo_jax.simulation.compiled_loop import LaneInputs, LoopState
from cpdpo_jax.simulation.curves import BlockCurves, check_policy, empty_curves, refuse_improper, write
from cpdpo_jax.simulation.lanes import LaneIndex, describe_lane, lane_inputs
from cpdpo_jax.simulation.plan import LearnerPlan
from cpdpo_jax.simulation.programs import LearnerProgram
from cpdpo_jax.simulation.slater import plug_in_slater_margin

CALL_SECONDS = 0.5  # of one call to the device: progress and Ctrl-C come at this rhythm
KEEP_SECONDS = 5.0  # between snapshots of a stored run


def in_its_precision(function: Any) -> Any:
    """function(plan, ...), run with jax in the precision of the plan, whatever the process is set to.

    Ranks broadcast: the batch trails, so that [B] beside [L,S,A,B] is meant everywhere here. The settings are the
    thread's own, so that they are made where the work is done.
    """

    @wraps(function)
    def run(plan: LearnerPlan, *arguments: Any, **keywords: Any) -> Any:
        with jax.enable_x64(bool(plan.dtype == np.float64)), jax.numpy_rank_promotion("allow"):
            return function(plan, *arguments, **keywords)

    return run


class Snapshot(NamedTuple):
    """A block in the middle of its run, on the host: enough to go on from, bit for bit. There is no random state."""

    episode: int  # episodes done
    believed: np.ndarray  # [B] the Slater margin as the learner believes it
    curves: BlockCurves
    state: list[np.ndarray]  # the leaves of `LoopState`: the learner's whole state, the sums and what they lost


@in_its_precision
def run_block(
    plan: LearnerPlan,
    lane: LaneIndex,
    progress: Callable[[int], None] = lambda n: None,
    stop: Callable[[], bool] = lambda: False,
    *,
    start: Snapshot | None = None,
    keep: Callable[[Snapshot], None] | None = None,
    every: float = KEEP_SECONDS,
) -> BlockCurves:
    """All episodes of a block, or those after `start`; how it is cut into calls and snapshots changes no bit of it.

    A lane with a value that is not finite is NaN from there on and no concern of the others; the block ends early only
    if no lane is left. A learner that plays what is not a policy, in whatever episode, is an error.
    `progress` is told of every n episodes done; `stop` asks whether to end early; `keep` is handed a snapshot every
    `every` seconds, and when it ends early.
    """
    curves = empty_curves(len(plan.checkpoints), plan.cmdp, len(lane.seed), plan.learner.analysis)
    t, believed = 0, np.asarray(plan.problem.slater_margin)[lane.instance]
    if start is not None:
        t, believed, curves = start.episode, start.believed, start.curves
    phase = next(phase for phase in plan.phases if t <= phase.last)
    inputs = lane_inputs(plan, lane, phase, believed)
    state = begin(phase.learner, inputs, phase.first)
    if start is not None:
        state = _restored(state, start.state)

    def snapshot() -> Snapshot:
        return Snapshot(t, believed, curves, [np.asarray(leaf) for leaf in jax.tree.leaves(state)])

    multiple = compiled_loop.call_multiple()
    size, kept = max(32, multiple), time.perf_counter()
    for end in plan.calls:
        if end < t:
            continue
        if t == phase.last < end:  # the learner starts afresh, the sums go on
            if phase.explores:
                believed = plug_in_slater_margin(inputs.problem, state.learner)
            phase = plan.phases[plan.phases.index(phase) + 1]
            inputs = lane_inputs(plan, lane, phase, believed)
            fresh = begin(phase.learner, inputs, phase.first)
            watch = fresh.watch if state.watch is None else state.watch  # none while exploring
            state = fresh._replace(
                sums=state.sums, carry=state.carry, first_bad=state.first_bad, played=state.played, watch=watch
            )
        while t < end and not stop():
            n = min(size, end - t)
            started = time.perf_counter()
            state = jax.block_until_ready(advance(phase.learner, plan.cmdp.noise, inputs, state, t, t + n))
            if n == size:  # a shorter call says little about the rhythm
                size = min(4 * n, int(n * CALL_SECONDS / max(time.perf_counter() - started, 1e-6)))
                size = max(1, size // multiple) * multiple
            t += n
            curves.first_bad[:] = np.asarray(state.first_bad) + 1
            refuse_improper(state.played, phase.learner.name, lambda b: describe_lane(plan, lane, b))
            progress(n)
            if keep is not None and time.perf_counter() - kept > every:
                keep(snapshot())
                kept = time.perf_counter()
        if t < end:
            break
        if t in plan.checkpoints:
            write(curves, int(np.searchsorted(plan.checkpoints, t)), t, state)
        if (curves.first_bad > 0).all():  # nobody is left
            break
    if keep is not None and t < plan.calls[-1]:
        keep(snapshot())
    healthy = curves.first_bad == 0
    if healthy.any():
        curves.policy[..., healthy] = np.asarray(_policy(phase.learner, inputs, state.learner))[..., healthy]
    check_policy(curves.policy[..., healthy], np.asarray(inputs.problem.action_mask)[..., healthy], phase.learner.name)
    curves.slater_margin[...] = believed
    curves.done[...] = t
    return curves


@in_its_precision
def compile_block(plan: LearnerPlan, lane: LaneIndex) -> None:
    """Compile what the blocks of a learner run, by a call of no episodes; a learner of wrong shapes is named here."""
    for phase in plan.phases[:2]:  # later phases have the shapes of the second
        inputs = lane_inputs(plan, lane, phase, np.asarray(plan.problem.slater_margin)[lane.instance])
        try:
            with no_garbage_collection():
                advance(phase.learner, plan.cmdp.noise, inputs, begin(phase.learner, inputs), 0, 0)
        except Exception:
            _explain_shapes(phase.learner, inputs)
            raise


def _explain_shapes(learner: Learner, inputs: LaneInputs) -> None:
    """Say in a sentence what shapes are wrong, if that is what is wrong: the traceback of a loop says little."""
    if not learner.compiled:
        return
    try:
        found = shape_faults(learner, inputs.problem, inputs.hyper)
    except Exception:  # an error of the learner's own, whose traceback is the best explanation
        return
    if found:
        raise ValueError(f"learner {learner.name!r}: {found[0]} `learners.check` says all that is wrong.") from None


def begin(learner: Learner, inputs: LaneInputs, t: int = 0) -> LoopState:
    """Before episode t, the first of a phase, on the device or on the host."""
    return _compiled_begin(learner, inputs, t) if learner.compiled else host_loop.begin(learner, inputs, t)


def advance(learner: Learner, noise: str, inputs: LaneInputs, state: LoopState, first: int, last: int) -> LoopState:
    """Episodes first..last-1, on the device or on the host."""
    if state.watch is not None:
        return watched_loop.advance(learner, noise, inputs, state, first, last)
    loop = compiled_loop if learner.compiled else host_loop
    return loop.advance(learner, noise, inputs._replace(truth=None), state, first, last)


def _policy(learner: Learner, inputs: LaneInputs, state: Any) -> Any:
    if not learner.compiled:
        return host_loop.policy(learner, inputs, state)
    return _compiled_policy(learner, inputs.problem, inputs.hyper, state)


# one small program each instead of one per operation: a third of a second less before the first episode
_compiled_begin = LearnerProgram(compiled_loop.begin)
_compiled_policy = LearnerProgram(lambda learner, problem, hyper, state: learner.policy(problem, hyper, state))


def _restored(state: LoopState, leaves: list[np.ndarray]) -> LoopState:
    """A state of the same kind with these leaves."""
    like, structure = jax.tree.flatten(state)
    wanted = [(leaf.shape, np.dtype(leaf.dtype)) for leaf in like]
    if [(leaf.shape, leaf.dtype) for leaf in leaves] != wanted:
        raise ValueError("the snapshot is of another learner, environment or version.")
    put = np.array if isinstance(like[0], np.ndarray) else jnp.array
    return jax.tree.unflatten(structure, [put(leaf) for leaf in leaves])
