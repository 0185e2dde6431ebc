"""`simulate`: learners x instances x hparams x seeds through T episodes, in one call."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Unpack

import numpy as np

from cpdpo_jax.common.errors import errors_of_learner
from cpdpo_jax.common.interrupts import interrupts
from cpdpo_jax.common.types import CMDP
from cpdpo_jax.kernels.machines import programs
from cpdpo_jax.learners.base import Learner
from cpdpo_jax.learners.hparams import HparamsLike
from cpdpo_jax.results.result import NonFiniteError, Result
from cpdpo_jax.simulation import inputs, monitor
from cpdpo_jax.simulation.assemble import assemble
from cpdpo_jax.simulation.blocks import compile_block, run_block
from cpdpo_jax.simulation.curves import BlockCurves
from cpdpo_jax.simulation.lanes import LaneIndex, describe_lane, split_into_blocks
from cpdpo_jax.simulation.options import Options, OptionValues, integer, takes_options
from cpdpo_jax.simulation.plan import LearnerPlan, prepare
from cpdpo_jax.simulation.workers import Job, devices, run_jobs, use_compilation_cache, worker_count


@takes_options
@interrupts()
def simulate(
    learner: str | Learner | Sequence[str | Learner],
    cmdp: str | CMDP | Sequence[CMDP],
    *,
    episodes: int,
    seeds: int | Sequence[int],
    hparams: HparamsLike = "tuned",
    block: int | None = None,
    progress: bool = True,
    **options: Unpack[OptionValues],
) -> Result:
    """Run every learner with all hparams on every instance and seed for `episodes` episodes; metrics are exact.

    learner      a name, a `Learner`, or several
    cmdp         an environment's name, a CMDP, a batch (`stack`), or a list of one shape
    seeds        how many (0, 1, ...), or which; a seed's draws depend on (key, position of the instance, seed) alone
    hparams      "tuned", "theory", values or a grid (see `learners.hparams`), or a dict of those by learner's name
    block        lanes per call to a device; None fits the cache. Results do not depend on it (docs/metrics.md)
    progress     show a bar with the time left, on a terminal
    @OPTIONS

    Ctrl-C returns the partial result, marked as interrupted; a second Ctrl-C ends the process.
    """
    block = None if block is None else integer("block", block)
    devices()  # raises an error if there is none
    inputs.refuse_rank_promotion()
    workers = worker_count()
    programs.warn_if_options_are_missing()
    use_compilation_cache()
    plan = prepare(learner, cmdp, episodes=episodes, seeds=seeds, hparams=hparams, options=Options.from_values(options))
    if options.get("monitor"):
        monitor.check([learner_plan.learner for learner_plan in plan.learners])
    blocks = [
        (p, lanes)
        for p, learner_plan in enumerate(plan.learners)
        for lanes in split_into_blocks(learner_plan, plan.seeds, block, workers)
    ]
    started = time.perf_counter()
    curves, interrupted = run_jobs([_job(plan.learners[p], lanes, p) for p, lanes in blocks], progress=progress)
    seconds = time.perf_counter() - started
    pieces = [(p, lanes, part) for (p, lanes), part in zip(blocks, curves, strict=True) if part is not None]
    result = assemble(plan.learners, pieces, plan.seeds, plan.solution, plan.attributes, seconds, interrupted)
    _raise_if_non_finite([(plan.learners[p], lanes, part) for p, lanes, part in pieces], result)
    return result


def _job(plan: LearnerPlan, block: LaneIndex, program: int) -> Job:
    """A block as a job for the workers; all blocks of a learner run the same program."""
    named = errors_of_learner(plan.learner.name)
    return Job(
        label=plan.learner.name,
        program=program,
        work=int(plan.checkpoints[-1]) * block.count,
        compile=named(lambda: compile_block(plan, block)),
        run=named(lambda advanced, stop: run_block(plan, block, lambda n: advanced(n * block.count), stop)),
    )


def _raise_if_non_finite(pieces: list[tuple[LearnerPlan, LaneIndex, BlockCurves]], result: Result) -> None:
    """Raise a NonFiniteError with the result if a lane had a non-finite value; it names the first such lane."""
    failed = [
        (int(curves.first_non_finite[b]), plan, block, int(b))
        for plan, block, curves in pieces
        for b in np.flatnonzero((curves.first_non_finite > 0) & block.real)
    ]
    if failed:
        episode, plan, block, b = min(failed, key=lambda failure: failure[0])
        others = f" {len(failed) - 1} more runs had a non-finite value." if len(failed) > 1 else ""
        raise NonFiniteError(
            f"learner {plan.learner.name!r} had a non-finite value in episode {episode} of "
            f"{describe_lane(plan, block, b)}; try dtype='float64' or a larger exploration.{others} The error's "
            ".result contains all other runs and all earlier episodes; its data.first_non_finite lists the episodes.",
            result,
        )
