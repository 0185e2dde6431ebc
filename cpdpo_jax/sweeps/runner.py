"""Running blocks in a run directory: `run_one`, a function of a block's description alone, and all of them at once."""

from __future__ import annotations

import functools
import json
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import jax
import numpy as np
from tqdm.auto import tqdm

from cpdpo_jax.results.result import assemble
from cpdpo_jax.simulation.blocks import KEEP_SECONDS, advance, begin, compile_block, make_lanes, run_block
from cpdpo_jax.simulation.simulate import cores, use_compilation_cache
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
    plan, work, lane = build_block(block)
    start = store.snapshot(key)
    if start is not None:
        progress(start.episode * len(block["seeds"]))
    started = time.perf_counter()
    record = run_block(
        work, lane, lambda n: progress(n * len(block["seeds"])), stop,
        start=start, keep=functools.partial(store.keep, key), every=every,
    )  # fmt: skip
    if int(record.done) < block["episodes"] and not (record.first_bad > 0).any():
        return False
    seconds = time.perf_counter() - started
    one = jax.tree.map(lambda leaf: np.asarray(leaf)[..., [block["instance"]]], plan.solution)
    result = assemble([work], [[(lane, record)]], np.asarray(block["seeds"]), one, plan.asked, seconds, False)
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
    todo = {key: block for key, block in blocks.items() if not store.is_done(key)}
    devices = jax.local_devices()
    if workers is None:
        workers = len(devices) if devices[0].platform != "cpu" else cores()
    total = sum(block["episodes"] * len(block["seeds"]) for block in todo.values())
    stop, begun, lock = threading.Event(), threading.Event(), threading.Lock()
    bar = tqdm(total=total, unit=" episodes", unit_scale=True, disable=True if quiet else None, smoothing=0.1)
    with bar, ThreadPoolExecutor(workers) as pool:

        def advanced(n: int) -> None:
            begun.set()
            with lock:
                bar.update(n)

        def one(key: str, block: BlockSpec, device: Any) -> bool:
            with jax.default_device(device):
                return not stop.is_set() and run_one(store, key, block, advanced, stop.is_set, every)

        futures = []
        try:
            for i, (key, block) in enumerate(todo.items()):
                if any(future.done() and future.exception() for future in futures):
                    break
                name = f"{block['learner']} on {block['environment']['name']}"
                bar.set_description(f"{name}: compiling" if kind(block) not in _COMPILED else name)
                with jax.default_device(devices[0]):  # as the blocks run: another context is another compilation
                    _compile(block)
                bar.set_description(name)
                futures.append(pool.submit(one, key, block, devices[i % len(devices)]))
                begun.wait(1)  # tracing the next program would hold up the first block
            wait(futures, return_when=FIRST_EXCEPTION)
        except KeyboardInterrupt:
            stop.set()
        finally:
            failed = [future for future in futures if future.done() and future.exception()]
            if failed:
                stop.set()
        wait(futures)
    for future in futures:
        future.result()
    return not stop.is_set()


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
        of = kind(block)
        if of not in seen:
            started = time.perf_counter()
            _compile(block)
            compiling += time.perf_counter() - started
            seen[of] = _seconds_per_episode(block)
            name = f"{block['learner']} on {show_environment(block['environment'])}"
            rates[name] = 1e6 * seen[of] / len(build_block(block)[2].seed)
        running += seen[of] * block["episodes"]
        _, work, lane = build_block(block)
        m = work.cmdp.n_constraints
        size += 60_000 + 8 * len(lane.seed) * (len(work.checkpoints) * (4 + 5 * m) + work.cmdp.reward.size)
    return Probe(len(seen), compiling, running / cores(), size / 1e6, rates)


def _seconds_per_episode(block: BlockSpec) -> float:
    """Of the whole block on one core, by doubling the number of episodes until the time can be read."""
    _, work, lane = build_block(block)
    phase = work.phases[-1]
    lanes = make_lanes(work, lane, phase, np.asarray(work.problem.slater_margin)[lane.instance])
    run, n = begin(phase.learner, lanes), 16
    while True:
        started = time.perf_counter()
        run = jax.block_until_ready(advance(phase.learner, work.cmdp.noise, lanes, run, 0, n))
        spent = time.perf_counter() - started
        if spent > PROBE_SECONDS or n >= block["episodes"]:
            return spent / n
        n *= 2


_COMPILED: set[str] = set()


def _compile(block: BlockSpec) -> None:
    if kind(block) not in _COMPILED:
        _, work, lane = build_block(block)
        compile_block(work, lane)
        _COMPILED.add(kind(block))
