"""Running blocks in a run directory: `run_one`, a function of a block's description alone, and all of them at once."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import jax
import numpy as np

from cpdpo_jax.common.machine import cores
from cpdpo_jax.simulation.assemble import assemble
from cpdpo_jax.simulation.blocks import KEEP_SECONDS, advance, begin, compile_block, run_block
from cpdpo_jax.simulation.lanes import lane_inputs
from cpdpo_jax.simulation.workers import Job, run_jobs, use_compilation_cache
from cpdpo_jax.sweeps.config import show_environment
from cpdpo_jax.sweeps.specification import BlockSpec, build_block, description, kind
from cpdpo_jax.sweeps.store import Store

PROBE_SECONDS = 0.3


def run_one(
    store: Store,
    key: str,
    block: BlockSpec,
    progress: Callable[[int], None] = lambda n: None,
    stop: Callable[[], bool] = lambda: False,
    every: float = KEEP_SECONDS,
) -> bool:
    """Run a block from where its snapshot stands, or from the start, and store it; False if it was stopped."""
    whole_plan, plan, lane = build_block(block)
    start = store.snapshot(key)
    if start is not None:
        progress(start.episode * len(block["seeds"]))
    started = time.perf_counter()
    curves = run_block(
        plan, lane, lambda n: progress(n * len(block["seeds"])), stop,
        start=start, keep=functools.partial(store.keep, key), every=every,
    )  # fmt: skip
    if int(curves.done) < block["episodes"] and not (curves.first_bad > 0).any():
        return False
    seconds = time.perf_counter() - started
    one = jax.tree.map(lambda leaf: np.asarray(leaf)[..., [block["instance"]]], whole_plan.solution)
    result = assemble([plan], [(0, lane, curves)], np.asarray(block["seeds"]), one, whole_plan.asked, seconds, False)
    label = show_environment(block["environment"])
    about = description(json.dumps(block["environment"]), block["instance"])
    result.data.attrs.update(
        environment=label, description=about, block=json.dumps(block, sort_keys=True), block_key=key
    )
    store.finish(key, result)
    return True


def run_all(
    store: Store,
    blocks: dict[str, BlockSpec],
    *,
    every: float = KEEP_SECONDS,
    workers: int | None = None,
    quiet: bool = False,
) -> bool:
    """Run every block that is not finished, over all cores or devices; False if stopped by Ctrl-C.

    An error in one block (a full disk, say) stops the others at their next snapshot, and is raised.
    """
    use_compilation_cache()
    jobs = [_job(store, key, block, every) for key, block in blocks.items() if not store.is_done(key)]
    _, interrupted = run_jobs(jobs, workers=workers, progress=not quiet)
    return not interrupted


def _job(store: Store, key: str, block: BlockSpec, every: float) -> Job:
    """A block for the workers."""
    return Job(
        label=f"{block['learner']} on {block['environment']['name']}",
        program=kind(block),
        work=block["episodes"] * len(block["seeds"]),
        compile=lambda: _compile(block),
        run=lambda advanced, stop: run_one(store, key, block, advanced, stop, every),
    )


class Probe(NamedTuple):
    """What a short measurement says of a run."""

    compilations: int
    compile_seconds: float
    run_seconds: float
    megabytes: float
    microseconds: dict[str, float]  # per seed and episode on one core, by learner and environment


def probe(blocks: Iterable[BlockSpec]) -> Probe:
    """Compile each kind of block and time a fraction of a second of it: an estimate for the whole."""
    use_compilation_cache()
    rates: dict[str, float] = {}
    seen: dict[str, float] = {}
    compiling = running = size = 0.0
    for block in blocks:
        program = kind(block)
        if program not in seen:
            started = time.perf_counter()
            _compile(block)
            compiling += time.perf_counter() - started
            seen[program] = _seconds_per_episode(block)
            name = f"{block['learner']} on {show_environment(block['environment'])}"
            rates[name] = 1e6 * seen[program] / len(build_block(block)[2].seed)
        running += seen[program] * block["episodes"]
        _, plan, lane = build_block(block)
        m = plan.cmdp.n_constraints
        size += 60_000 + 8 * len(lane.seed) * (len(plan.checkpoints) * (4 + 5 * m) + plan.cmdp.reward.size)
    return Probe(len(seen), compiling, running / cores(), size / 1e6, rates)


def _seconds_per_episode(block: BlockSpec) -> float:
    """Of the whole block on one core, by doubling the number of episodes until the time can be read."""
    _, plan, lane = build_block(block)
    phase = plan.phases[-1]
    lanes = lane_inputs(plan, lane, phase, np.asarray(plan.problem.slater_margin)[lane.instance])
    state, n = begin(phase.learner, lanes), 16
    while True:
        started = time.perf_counter()
        state = jax.block_until_ready(advance(phase.learner, plan.cmdp.noise, lanes, state, 0, n))
        spent = time.perf_counter() - started
        if spent > PROBE_SECONDS or n >= block["episodes"]:
            return spent / n
        n *= 2


_COMPILED: set[str] = set()


def _compile(block: BlockSpec) -> None:
    if kind(block) not in _COMPILED:
        _, plan, lane = build_block(block)
        compile_block(plan, lane)
        _COMPILED.add(kind(block))
