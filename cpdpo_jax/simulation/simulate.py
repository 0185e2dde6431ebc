"""`simulate`: learners x instances x settings x seeds through T episodes, in one call."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from cpdpo_jax.common.types import CMDP
from cpdpo_jax.kernels.target import target_platform
from cpdpo_jax.learners.base import Learner
from cpdpo_jax.results.result import NonFiniteError, Result
from cpdpo_jax.simulation.assemble import assemble
from cpdpo_jax.simulation.blocks import compile_block, run_block
from cpdpo_jax.simulation.curves import BlockCurves
from cpdpo_jax.simulation.lanes import LaneIndex, cut, describe_lane
from cpdpo_jax.simulation.options import Options, takes_options, whole
from cpdpo_jax.simulation.plan import LearnerPlan, prepare
from cpdpo_jax.simulation.workers import Job, devices, how_many, run_jobs, use_compilation_cache


@takes_options
def simulate(
    learner: str | Learner | Sequence[str | Learner],
    cmdp: str | CMDP | Sequence[CMDP],
    *,
    episodes: int,
    seeds: int | Sequence[int],
    hparams: Any = "tuned",
    block: int | None = None,
    progress: bool = True,
    **options: Any,
) -> Result:
    """Run every learner on every instance, setting and seed for `episodes` episodes, with exact metrics of each.

    learner      a name, a `Learner`, or several
    cmdp         an environment's name, a CMDP, a batch (`stack`), or a list of one shape
    seeds        how many (0, 1, ...), or which; a seed's luck depends on (key, instance's position, seed) alone
    hparams      "tuned", "theory", values or a grid (see `learners.settings`), or a dict of those by learner's name
    block        lanes per call to a device; None fits the cache. Results do not depend on it (docs/metrics.md)
    progress     show a bar with the time left, on a terminal
    @OPTIONS

    Ctrl-C returns what is done, marked as interrupted.
    """
    block = None if block is None else whole("block", block)
    devices()  # one sentence where there is none
    platform, workers = target_platform(), how_many()
    use_compilation_cache()
    plan = prepare(learner, cmdp, episodes=episodes, seeds=seeds, hparams=hparams, options=Options.made_of(options))
    blocks = [
        (p, lane)
        for p, learner_plan in enumerate(plan.learners)
        for lane in cut(learner_plan, plan.seeds, block, workers, platform)
    ]
    started = time.perf_counter()
    curves, interrupted = run_jobs([_job(plan.learners[p], lane, p) for p, lane in blocks], progress=progress)
    seconds = time.perf_counter() - started
    pieces = [(p, lane, told) for (p, lane), told in zip(blocks, curves, strict=True) if told is not None]
    result = assemble(plan.learners, pieces, plan.seeds, plan.solution, plan.asked, seconds, interrupted)
    _complain_of_non_finite([(plan.learners[p], lane, told) for p, lane, told in pieces], result)
    return result


def _job(plan: LearnerPlan, lane: LaneIndex, program: int) -> Job:
    """A block for the workers; all of a learner run one program."""
    return Job(
        label=plan.learner.name,
        program=program,
        work=int(plan.checkpoints[-1]) * lane.count,
        compile=lambda: compile_block(plan, lane),
        run=lambda advanced, stop: run_block(plan, lane, lambda n: advanced(n * lane.count), stop),
    )


def _complain_of_non_finite(pieces: list[tuple[LearnerPlan, LaneIndex, BlockCurves]], result: Result) -> None:
    """Raise if values that are not finite came up, saying how many lanes and where first; the result goes with it."""
    found = [
        (int(curves.first_bad[b]), plan, lane, int(b))
        for plan, lane, curves in pieces
        for b in np.flatnonzero((curves.first_bad > 0) & lane.real)
    ]
    if found:
        episode, plan, lane, b = min(found, key=lambda one: one[0])
        others = f" {len(found) - 1} more of the runs had one later or elsewhere." if len(found) > 1 else ""
        raise NonFiniteError(
            f"learner {plan.learner.name!r} had a value that is not finite in episode {episode} of "
            f"{describe_lane(plan, lane, b)}; try dtype='float64' or a larger exploration.{others} What was "
            "done before it, and all other seeds, are in the error's .result; its data.first_non_finite says which.",
            result,
        )
