"""The parts of `python -m experiments.speed`: each measures and returns rows of plain data."""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from cpdpo_jax.common.machine import cores
from experiments.speed import anchor as anchors
from experiments.speed.process import cache, process
from experiments.speed.timing import Job, Size, compile_seconds, per_episode, simulated, span

SIZES = tuple(
    Size(*size)
    for size in (
        (3, 3, 2, 1), (5, 5, 3, 2), (4, 7, 2, 3), (12, 4, 3, 1), (8, 8, 4, 2), (10, 10, 4, 2), (20, 20, 5, 1),
    )
)  # fmt: skip
SEEDS = (8, 64, 512)
SCALING_SEEDS = tuple(2**i for i in range(13))
LEARNERS = ("cpdpo", "cpd_oppo")
MIDDLE, LARGEST_NAIVE = Size(5, 5, 3, 2), Size(8, 8, 4, 2)
WIDE = Size(10, 30, 3, 1)  # for the planner of optprimaldual
PEAK_SIZES = (MIDDLE, Size(10, 10, 4, 2), Size(20, 20, 5, 1))
GPU_SIZES, GPU_LANES = (MIDDLE, Size(10, 10, 4, 2)), 4096
ANCHOR_GROUP = 8  # seeds: one group of the anchor, which runs on one core
LANES = 64  # seeds of the naive, learners and flame rows

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Request:
    """What to measure; each part has defaults for empty fields."""

    sizes: tuple[Size, ...] = ()
    seeds: tuple[int, ...] = ()
    learners: tuple[str, ...] = ()
    anchors: dict[str, Path] = field(default_factory=dict)  # C++ sources by learner
    seconds: float = 1.0  # of one measurement
    target: str = "h100"


def progress(text: str) -> None:
    """Show what is being measured."""
    print(text, file=sys.stderr, flush=True)


def speed(request: Request) -> Rows:
    """Learners and their anchors at every size and number of seeds; compilation with an empty and with a full cache."""
    rows = []
    learners = request.learners or LEARNERS
    with tempfile.TemporaryDirectory(prefix="cpdpo_speed_") as directory:
        for learner, size in itertools.product(learners, request.sizes or SIZES):
            source = request.anchors.get(learner)
            program = anchors.build(source, size, directory) if source else None
            for n in request.seeds or SEEDS:
                progress(f"speed: {learner}, {tuple(size)}, {n} seeds")
                rows.append(_speed(Job(size, n, learner), program, request.seconds))
    return rows


def _speed(job: Job, program: str | None, seconds: float) -> dict[str, Any]:
    used = 1 if job.seeds <= ANCHOR_GROUP else cores()
    with tempfile.TemporaryDirectory(prefix="cpdpo_speed_cache_") as directory:
        with process(cores(), cache(directory)) as call:
            compiling = call(compile_seconds, job)
        with process(used, cache(directory)) as call:
            cached = call(compile_seconds, job)
            runs: dict[str, Callable[[int], float]] = {"ours": partial(call, simulated, job)}
            over = span(runs["ours"], seconds)
            if program:
                runs["anchor"] = partial(call, anchors.run, program, job.seeds, used)
            times = {name: 1e6 * t / job.seeds for name, t in per_episode(runs, over).items()}
    row = {"learner": job.learner, "size": list(job.size), "seeds": job.seeds, "cores": used, "episodes": list(over)}
    row |= {"compile_seconds": compiling, "cached_compile_seconds": cached, "microseconds": times["ours"]}
    if program:
        row |= {"anchor_microseconds": times["anchor"], "ratio": times["ours"] / times["anchor"]}
    return row


def naive(request: Request) -> Rows:
    """The naive programs on all cores, up to their maximum size."""
    from experiments.speed.naive import numpy_seconds, vmap_seconds

    rows = []
    for size in request.sizes or SIZES:
        if any(n > most for n, most in zip(size, LARGEST_NAIVE, strict=True)):
            continue
        progress(f"naive programs: {tuple(size)}")
        with process(cores()) as call:
            compiling, mapped = call(vmap_seconds, size, LANES, request.seconds)
            loops = call(numpy_seconds, size, request.seconds)
        about = {"size": list(size)}
        rows.append(about | {"program": "vmap", "seeds": LANES, "microseconds": 1e6 * mapped / LANES,
                             "compile_seconds": compiling})  # fmt: skip
        rows.append(about | {"program": "NumPy", "seeds": 1, "microseconds": 1e6 * loops})
    return rows


def learners(request: Request) -> Rows:
    """Throughput of every learner, and of a planner on wide layers."""
    from cpdpo_jax import learners

    known = [learners.get(name) for name in request.learners or learners.names()]
    names = [learner.name for learner in known if learner.plays is None and learner.most_constraints is None]
    jobs = [Job(size, LANES, name) for name in names for size in request.sizes or (MIDDLE,)]
    if not request.sizes and "optprimaldual" in names:
        jobs.append(Job(WIDE, LANES, "optprimaldual"))
    return [_throughput(job, cores(), request.seconds) for job in jobs]


def scaling(request: Request) -> Rows:
    """Throughput of CPD-PO against seeds, on one core and on all."""
    jobs = [Job(size, n) for size in request.sizes or (MIDDLE,) for n in request.seeds or SCALING_SEEDS]
    return [_throughput(job, used, request.seconds) for used in sorted({1, cores()}) for job in jobs]


def _throughput(job: Job, used: int, seconds: float) -> dict[str, Any]:
    progress(f"{job.learner}, {tuple(job.size)}, {job.seeds} seeds on {used} cores")
    with process(used) as call:
        call(compile_seconds, job)
        run = partial(call, simulated, job)
        over = span(run, seconds)
        spent = per_episode({"ours": run}, over)["ours"]
    row = {"learner": job.learner, "size": list(job.size), "seeds": job.seeds, "cores": used, "episodes": list(over)}
    return row | {"episodes_per_second": job.seeds / spent, "microseconds": 1e6 * spent / job.seeds}


def flame(request: Request) -> Rows:
    """Where an episode's time goes, on one core."""
    from experiments.speed.flame import flame

    rows = []
    for learner, size in itertools.product(request.learners or LEARNERS, request.sizes or (MIDDLE,)):
        progress(f"flame: {learner}, {tuple(size)}")
        with process(1) as call:
            rows += call(flame, learner, size, LANES, request.seconds / 4)
    return rows


def peak(request: Request) -> Rows:
    """Operations and bytes of an episode by formula, and the percentages of one core's peaks that they reach."""
    from experiments.speed.peak import peaks, work

    rows = []
    with tempfile.TemporaryDirectory(prefix="cpdpo_speed_") as directory:
        for learner, size in itertools.product(request.learners or LEARNERS, request.sizes or PEAK_SIZES):
            each = work(learner, size)
            row = _throughput(Job(size, LANES, learner), 1, request.seconds)
            with process(1) as call:
                limit = call(peaks, directory, round(each.bytes * LANES))
            rate = row["episodes_per_second"]
            row |= {"operations": each.operations, "bytes": each.bytes}
            row |= {"operations_per_second": rate * each.operations, "bytes_per_second": rate * each.bytes}
            row |= {"peak_operations": limit.operations, "peak_bytes": limit.bytes}
            row |= {"share_of_operations": rate * each.operations / limit.operations}
            rows.append(row | {"share_of_bytes": rate * each.bytes / limit.bytes})
    return rows


def gpu(request: Request) -> Rows:
    """Counts of the loop over episodes as compiled by XLA's GPU compiler."""
    from experiments.speed import gpu

    gpu.check(request.target)
    rows = []
    for size, learner in itertools.product(request.sizes or GPU_SIZES, request.learners or LEARNERS):
        for lanes in request.seeds or (GPU_LANES,):
            progress(f"gpu: {learner}, {tuple(size)}, {lanes} lanes for {request.target}")
            rows.append(gpu.report(size, lanes, learner, request.target))
    return rows


PARTS: dict[str, Callable[[Request], Rows]] = {
    "speed": speed,
    "naive": naive,
    "learners": learners,
    "flame": flame,
    "scaling": scaling,
    "peak": peak,
    "gpu": gpu,
}
