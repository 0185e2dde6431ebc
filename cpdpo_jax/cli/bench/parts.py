"""The parts of `cpdpo bench`, each a function that measures and returns plain data."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from cpdpo_jax.cli.bench import anchor as anchors
from cpdpo_jax.cli.bench import naive
from cpdpo_jax.cli.bench.simulator import (
    Job,
    Size,
    Worker,
    compiled,
    peak_memory,
    per_episode,
    simulated,
    span,
)
from cpdpo_jax.common.machine import cores

MIDDLE = Size(5, 5, 3, 2)
LARGEST_NAIVE = Size(8, 8, 4, 2)
WIDE = Size(10, 30, 3, 1)  # for the planner of optprimaldual
ANCHOR_GROUP = 8  # seeds: one group of the anchor, which runs on one core
SCALING_SEEDS = tuple(2**i for i in range(13))
ROUNDS = 2
MEMORY_EPISODES = (10_000, 200_000)
SATURATED = 0.9  # of the largest throughput

Say = Callable[[str], None]


def speed(
    learners: list[str],
    sizes: list[Size],
    seeds: list[int],
    sources: dict[str, Path],
    *,
    seconds: float,
    cold: bool,
    say: Say,
) -> list[dict[str, Any]]:
    """Every learner at every size and number of seeds, beside its anchor if there is one.

    `cold` compiles from nothing first and then reads what was compiled; else the user's cache is used.
    """
    rows = []
    with tempfile.TemporaryDirectory(prefix="cpdpo_bench_") as directory:
        for learner, size in itertools.product(learners, sizes):
            program = anchors.build(sources[learner], size, directory) if learner in sources else None
            cache = str(Path(directory) / f"cache{learner}{size}") if cold else None
            for n in seeds:
                say(f"speed: {learner}, {size}, {n} seeds")
                rows.append(_cell(Job(size, n, learner), program, cache, seconds))
    return rows


def _cell(job: Job, program: str | None, cache: str | None, seconds: float) -> dict[str, Any]:
    used = 1 if job.seeds <= ANCHOR_GROUP else cores()
    from_nothing = None
    if cache is not None:
        known = _files(cache)
        with Worker(cores(), cache) as fresh:
            from_nothing = fresh(compiled, job)
        if _files(cache) == known:  # a block of the same width was compiled for another number of seeds
            from_nothing = None
    with Worker(used, cache) as worker:
        from_cache = worker(compiled, job)
        runs: dict[str, Callable[[int], float]] = {"ours": partial(worker, simulated, job)}
        over = span(runs["ours"], seconds)
        if program:
            runs["anchor"] = partial(worker, anchors.run, program, job.seeds, used)
        times = per_episode(runs, over, ROUNDS)
    ours, theirs = 1e6 * times["ours"] / job.seeds, 1e6 * times.get("anchor", float("nan")) / job.seeds
    row = {"learner": job.learner, "size": list(job.size), "seeds": job.seeds, "cores": used, "episodes": list(over)}
    row |= {"compile_seconds": from_nothing, "cached_compile_seconds": from_cache, "microseconds": ours}
    return row | ({"anchor_microseconds": theirs, "ratio": ours / theirs} if program else {})


def _files(directory: str) -> set[str]:
    return {path.name for path in Path(directory).glob("jit_cpdpo_*") if not path.name.endswith("atime")}


def naively(sizes: list[Size], seeds: int, *, seconds: float, say: Say) -> list[dict[str, Any]]:
    """The naive programs on all cores, up to a size at which they end."""
    rows = []
    for size in sizes:
        if any(n > most for n, most in zip(size, LARGEST_NAIVE, strict=True)):
            continue
        say(f"naive programs: {size}")
        with Worker(cores()) as worker:
            compiling, by_vmap = worker(naive.vmap_seconds, size, seeds, seconds)
            loops = worker(naive.numpy_seconds, size, seconds)
        rows.append({"size": list(size), "program": "vmap", "seeds": seeds, "microseconds": 1e6 * by_vmap / seeds,
                     "compile_seconds": compiling})  # fmt: skip
        rows.append({"size": list(size), "program": "NumPy", "seeds": 1, "microseconds": 1e6 * loops})
    return rows


def baselines(learners: list[str], seeds: int, wide: bool, *, seconds: float, say: Say) -> list[dict[str, Any]]:
    """Episodes per second, summed over seeds, of every learner, and of one on wide layers."""
    jobs = [Job(MIDDLE, seeds, learner) for learner in learners]
    jobs += [Job(WIDE, seeds, "optprimaldual")] if wide else []
    rows = []
    for job in jobs:
        say(f"learner {job.learner}: {job.size}")
        rows.append(_throughput(job, cores(), seconds))
    return rows


def _throughput(job: Job, used: int, seconds: float) -> dict[str, Any]:
    with Worker(used) as worker:
        worker(compiled, job)
        run = partial(worker, simulated, job)
        over = span(run, seconds)
        spent = per_episode({"ours": run}, over, ROUNDS)["ours"]
    row = {"learner": job.learner, "size": list(job.size), "seeds": job.seeds, "cores": used, "episodes": list(over)}
    return row | {"episodes_per_second": job.seeds / spent, "microseconds": 1e6 * spent / job.seeds}


def scaling(seeds: tuple[int, ...], *, seconds: float, say: Say) -> dict[str, Any]:
    """Throughput against seeds and cores, and the fewest seeds with 90 % of the most."""
    rows, saturation = [], {}
    for used in sorted({1, cores()}):
        for n in seeds:
            say(f"scaling: {n} seeds on {used} cores")
            rows.append(_throughput(Job(MIDDLE, n), used, seconds))
        here = [row for row in rows if row["cores"] == used]
        most = max(row["episodes_per_second"] for row in here)
        saturation[str(used)] = min(r["seeds"] for r in here if r["episodes_per_second"] >= SATURATED * most)
    return {"rows": rows, "saturates_at_seeds": saturation}


def memory(seeds: int, episodes: tuple[int, ...], *, say: Say) -> list[dict[str, Any]]:
    """Peak memory of a fresh process at each T: it does not grow with T."""
    rows = []
    for n in episodes:
        say(f"memory: T = {n:,}")
        with Worker(cores()) as worker:
            rows.append({"episodes": n, "seeds": seeds, "mebibytes": worker(peak_memory, Job(MIDDLE, seeds), n)})
    return rows
