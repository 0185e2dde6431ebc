"""Runs a block of lanes through time: phases, calls to the device, checkpoints and snapshots."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common.machine import no_garbage_collection
from cpdpo_jax.kernels.machines import programs
from cpdpo_jax.learners.base import Learner
from cpdpo_jax.learners.checking import shape_faults
from cpdpo_jax.simulation import compiled_loop, host_loop
from cpdpo_jax.simulation.compiled_loop import LaneInputs, LoopState
from cpdpo_jax.simulation.curves import BlockCurves, empty_curves, write_checkpoint
from cpdpo_jax.simulation.lanes import LaneIndex, describe_lane, lane_inputs
from cpdpo_jax.simulation.learner_program import LearnerProgram
from cpdpo_jax.simulation.losses import Environment
from cpdpo_jax.simulation.plan import LearnerPlan
from cpdpo_jax.simulation.policy_check import check_final_policy, raise_if_improper
from cpdpo_jax.simulation.slater import plug_in_slater_margin

CALL_SECONDS = 0.5  # target duration of a device call; progress and Ctrl-C are handled between calls
SNAPSHOT_SECONDS = 5.0  # between snapshots of a stored run


def with_plan_precision(function: Any) -> Any:
    """function(plan, ...), run with jax in the precision of the plan, whatever the configuration of the process.

    Rank promotion is allowed: because the batch trails, [B] with [L,S,A,B] is intended everywhere here. These contexts
    belong to a thread, so they are entered in the thread that does the work.
    """

    @wraps(function)
    def run(plan: LearnerPlan, *arguments: Any, **keywords: Any) -> Any:
        with jax.enable_x64(bool(plan.dtype == np.float64)), jax.numpy_rank_promotion("allow"):
            return function(plan, *arguments, **keywords)

    return run


class Snapshot(NamedTuple):
    """An unfinished block on the host: sufficient for a bit-identical resume. There is no random state."""

    episode: int  # episodes done
    believed: np.ndarray  # [B] the Slater margin given to the learner
    curves: BlockCurves
    state: list[np.ndarray]  # the leaves of `LoopState`


@with_plan_precision
def run_block(
    plan: LearnerPlan,
    block: LaneIndex,
    progress: Callable[[int], None] = lambda n: None,
    stop: Callable[[], bool] = lambda: False,
    *,
    start: Snapshot | None = None,
    save: Callable[[Snapshot], None] | None = None,
    every: float = SNAPSHOT_SECONDS,
) -> BlockCurves:
    """Run all episodes of a block, or those after `start`; results do not depend on calls and snapshots, bit by bit.

    A lane with a non-finite value is NaN from then on and does not affect the others; the block ends early only if no
    finite lane is left. A learner that does not play a policy in some episode raises a ValueError.
    `progress(n)` is called after every n episodes; `stop()` returns whether to end early; `save` receives a snapshot
    every `every` seconds and when the block ends early.
    """
    curves = empty_curves(len(plan.checkpoints), plan.cmdp, len(block.seed), plan.learner.analysis)
    t, believed = 0, plan.believed(block.hparams, block.instance)
    if start is not None:
        t, believed, curves = start.episode, start.believed, start.curves
    phase = next(phase for phase in plan.phases if t <= phase.last)
    inputs = lane_inputs(plan, block, phase, believed)
    state = begin(phase.learner, plan.environment, inputs, phase.first)
    if start is not None:
        state = _restore(state, start.state)

    def snapshot() -> Snapshot:
        return Snapshot(t, believed, curves, [np.asarray(leaf) for leaf in jax.tree.leaves(state)])

    multiple = programs.inner_loop_length()
    size, saved = max(32, multiple), time.perf_counter()
    for end in plan.calls:
        if end < t:
            continue
        if t == phase.last < end:  # the learner restarts, the sums continue
            if phase.explores:
                believed = plug_in_slater_margin(inputs.problem, state.learner)
            phase = plan.phases[plan.phases.index(phase) + 1]
            inputs = lane_inputs(plan, block, phase, believed)
            restarted = begin(phase.learner, plan.environment, inputs, phase.first)
            watch = restarted.watch if state.watch is None else state.watch  # there is none while exploring
            state = restarted._replace(
                sums=state.sums,
                carry=state.carry,
                first_non_finite=state.first_non_finite,
                policy_check=state.policy_check,
                watch=watch,
            )
        while t < end and not stop():
            n = min(size, end - t)
            started = time.perf_counter()
            state = jax.block_until_ready(advance(phase.learner, plan.environment, inputs, state, t, t + n))
            if n == size:  # a shorter call is not representative
                size = min(4 * n, int(n * CALL_SECONDS / max(time.perf_counter() - started, 1e-6)))
                size = max(1, size // multiple) * multiple
            t += n
            curves.first_non_finite[:] = np.asarray(state.first_non_finite) + 1
            raise_if_improper(state.policy_check, phase.learner.name, lambda b: describe_lane(plan, block, b))
            progress(n)
            if save is not None and time.perf_counter() - saved > every:
                save(snapshot())
                saved = time.perf_counter()
        if t < end:
            break
        if t in plan.checkpoints:
            write_checkpoint(curves, int(np.searchsorted(plan.checkpoints, t)), t, state)
        if (curves.first_non_finite > 0).all():  # no finite lane is left
            break
    if save is not None and t < plan.calls[-1]:
        save(snapshot())
    healthy = curves.first_non_finite == 0
    if healthy.any():
        curves.policy[..., healthy] = np.asarray(_policy(phase.learner, inputs, state.learner))[..., healthy]
    check_final_policy(
        curves.policy[..., healthy], np.asarray(inputs.problem.action_mask)[..., healthy], phase.learner.name
    )
    curves.slater_margin[...] = believed
    curves.done[...] = t
    return curves


@with_plan_precision
def compile_block(plan: LearnerPlan, block: LaneIndex) -> None:
    """Compile the programs of a learner's blocks by a call of zero episodes; wrong shapes are reported here."""
    for phase in plan.phases[:2]:  # later phases have the same shapes as the second
        inputs = lane_inputs(plan, block, phase, plan.believed(block.hparams, block.instance))
        try:
            with no_garbage_collection():
                advance(phase.learner, plan.environment, inputs, begin(phase.learner, plan.environment, inputs), 0, 0)
        except Exception:
            _explain_shapes(phase.learner, inputs)
            raise


def _explain_shapes(learner: Learner, inputs: LaneInputs) -> None:
    """Raise a ValueError that names wrong shapes, if any: the traceback of a loop is hard to read."""
    if not learner.compiled:
        return
    try:
        faults = shape_faults(learner, inputs.problem, inputs.hyper)
    except Exception:  # an error inside the learner: its traceback is the best explanation
        return
    if faults:
        raise ValueError(f"learner {learner.name!r}: {faults[0]} `learners.check` lists all faults.") from None


def begin(learner: Learner, environment: Environment, inputs: LaneInputs, t: int = 0) -> LoopState:
    """The state before episode t, the first of a phase, on the device or on the host."""
    loop = _compiled_begin if learner.compiled else host_loop.begin
    return loop(learner, environment, inputs, t)


def advance(
    learner: Learner, environment: Environment, inputs: LaneInputs, state: LoopState, first: int, last: int
) -> LoopState:
    """Run episodes first..last-1, on the device or on the host."""
    loop = compiled_loop if learner.compiled else host_loop
    return loop.advance(learner, environment, inputs, state, first, last)


def _policy(learner: Learner, inputs: LaneInputs, state: Any) -> Any:
    if not learner.compiled:
        return host_loop.policy(learner, inputs, state)
    return _compiled_policy(learner, inputs.problem, inputs.hyper, state)


# compiled as one program each, not operation by operation: saves a third of a second before the first episode
_compiled_begin = LearnerProgram(compiled_loop.begin, static_argnums=0)
_compiled_policy = LearnerProgram(lambda learner, problem, hyper, state: learner.policy(problem, hyper, state))


def _restore(state: LoopState, leaves: list[np.ndarray]) -> LoopState:
    """A state of the same structure with these leaves."""
    like, structure = jax.tree.flatten(state)
    wanted = [(leaf.shape, np.dtype(leaf.dtype)) for leaf in like]
    if [(leaf.shape, leaf.dtype) for leaf in leaves] != wanted:
        raise ValueError(
            "the snapshot belongs to another learner, environment or version; delete it to run the block again."
        )
    put = np.array if isinstance(like[0], np.ndarray) else jnp.array
    return jax.tree.unflatten(structure, [put(leaf) for leaf in leaves])
