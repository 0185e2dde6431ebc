"""`simulate`: learners x instances x settings x seeds through T episodes, in one call."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental.compilation_cache import compilation_cache
from tqdm.auto import tqdm

from cpdpo_jax.common.types import CMDP
from cpdpo_jax.exact import optimum
from cpdpo_jax.kernels.loops import MAX_UNROLLED_STATES
from cpdpo_jax.learners import base, settings
from cpdpo_jax.learners.base import Learner
from cpdpo_jax.results.result import NonFiniteError, Result, assemble
from cpdpo_jax.simulation import inputs
from cpdpo_jax.simulation.blocks import HOST_LANES, LANE_MULTIPLE, LaneIndex, LearnerPlan, compile_block, run_block
from cpdpo_jax.simulation.curves import BlockCurves

CACHE_BYTES = 3 * 2**18  # of a block's counts and confidence sets on a CPU core: what stays in the cache
DEVICE_LANES = 4096  # lanes of a block on an accelerator


def simulate(
    learner: str | Learner | Sequence[str | Learner],
    cmdp: str | CMDP | Sequence[CMDP],
    *,
    episodes: int,
    seeds: int | Sequence[int],
    hparams: settings.Hparams | dict[str, settings.Hparams] = "tuned",
    key: int = 0,
    checkpoints: int | str | Sequence[int] = "log",
    rho: float | str | Sequence[float] = "solve",
    delta: float = 0.05,
    horizon: str = "known",
    monitor: bool = False,
    dtype: Any = "float32",
    block: int | None = None,
    progress: bool = True,
) -> Result:
    """Run every learner on every instance, setting and seed for `episodes` episodes, with exact metrics of each.

    learner      a name, a `Learner`, or several
    cmdp         an environment's name, a CMDP, a batch (`stack`), or a list of one shape
    seeds        how many (0, 1, ...), or which; a seed's luck depends on (key, instance's position, seed) alone
    hparams      "tuned", "theory", values or a grid (see `learners.settings`), or a dict of those by learner's name
    checkpoints  "log" (20 per decade), how many evenly spaced ones, or the episodes themselves
    rho          the Slater margin handed to the learner: "solve" (the true one), a number or one per instance
                 (misspecified on purpose), or "estimate:N" (from N first episodes of uniform play, which count)
    horizon      "known": the learner's constants use T; "doubling": T is unknown, the learner restarts at 2^k * 1024
    monitor      watch the events of the analysis (`cpdpo_jax.simulation.monitor`); CPD-PO only
    dtype        "float32", or "float64" (needs jax_enable_x64)
    block        lanes per call to a device; None fits the cache. Results do not depend on it.

    Ctrl-C returns what is done, marked as interrupted.
    """
    block = None if block is None else inputs.positive("block", block)
    use_compilation_cache()
    plan = prepare(
        learner, cmdp, episodes=episodes, seeds=seeds, hparams=hparams, key=key, checkpoints=checkpoints, rho=rho,
        delta=delta, horizon=horizon, monitor=monitor, dtype=dtype,
    )  # fmt: skip
    started = time.perf_counter()
    records, interrupted = _run(plan.works, plan.seeds, block, progress)
    seconds = time.perf_counter() - started
    result = assemble(plan.works, records, plan.seeds, plan.solution, plan.asked, seconds, interrupted)
    _complain_of_non_finite(plan.works, records, result)
    return result


class SimulationPlan(NamedTuple):
    """A run, checked and ready to be cut into blocks."""

    works: list[LearnerPlan]  # one per learner
    seeds: np.ndarray
    solution: optimum.Solution
    asked: dict[str, Any]  # what goes into the result's attributes


def prepare(
    learner: str | Learner | Sequence[str | Learner],
    cmdp: str | CMDP | Sequence[CMDP],
    *,
    episodes: int,
    seeds: int | Sequence[int],
    hparams: settings.Hparams | dict[str, settings.Hparams] = "tuned",
    key: int = 0,
    checkpoints: int | str | Sequence[int] = "log",
    rho: float | str | Sequence[float] = "solve",
    delta: float = 0.05,
    horizon: str = "known",
    monitor: bool = False,
    dtype: Any = "float32",
    solution: optimum.Solution | None = None,
) -> SimulationPlan:
    """Check everything `simulate` is given, before any work is done; `solution` spares solving the instances again."""
    learners = [base.get(one) for one in ([learner] if isinstance(learner, (str, Learner)) else learner)]
    cmdp = inputs.batch(cmdp)
    episodes = inputs.positive("episodes", episodes)
    seed_numbers = inputs.seeds(seeds)
    points = inputs.checkpoints(checkpoints, episodes)
    dtype = inputs.dtype(dtype)
    if not 0 < delta < 1:
        raise ValueError(f"delta = {delta!r} is not a probability; give a number between 0 and 1, such as 0.05.")
    if len({one.name for one in learners}) < len(learners):
        raise ValueError("the same learner is named twice; name each once and give its settings in hparams.")
    solution = optimum.solve(cmdp) if solution is None else solution
    margin, explored = inputs.slater_margin(rho, cmdp, solution, learners)
    if explored >= episodes:
        raise ValueError(f"rho = {rho!r} explores for all {episodes} episodes; explore for fewer, or run for more.")
    problem = base.make_problem(cmdp, episodes=episodes, delta=delta, slater_margin=margin)
    works = []
    for one in learners:
        spec = hparams
        if isinstance(hparams, dict) and set(hparams) & {x.name for x in learners}:
            spec = hparams.get(one.name, "tuned")
        works.append(
            LearnerPlan(
                phases=inputs.phases(one, episodes, explored, horizon),
                cmdp=cmdp,
                problem=problem,
                settings=settings.parse(spec),  # pyright: ignore[reportArgumentType]
                optimum=np.asarray(solution.value),
                truth=inputs.truth(monitor, one, cmdp, solution),
                key=int(key),
                dtype=dtype,
                checkpoints=points,
                known_policy=getattr(solution, one.plays) if one.plays else None,
            )
        )
        for setting in works[-1].settings:
            settings.resolve(setting, one, problem)  # errors before any work is done
    asked = {"episodes": episodes, "delta": delta, "rho": str(rho), "horizon": horizon}
    return SimulationPlan(works, seed_numbers, solution, asked)


def use_compilation_cache() -> None:
    """Keep compiled programs in the user's cache directory, so that a second start need not compile again.

    A directory that the user has set (`JAX_COMPILATION_CACHE_DIR` or `jax_compilation_cache_dir`) is left as it is.
    """
    config: Any = jax.config
    if config.jax_compilation_cache_dir is not None or not config.jax_enable_compilation_cache:
        return
    directory = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cpdpo_jax"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        writable = os.access(directory, os.W_OK)
    except (OSError, RuntimeError):
        writable = False
    if writable:
        config.update("jax_compilation_cache_dir", str(directory))
        config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        compilation_cache.reset_cache()  # what was compiled before has settled that there is none


def _run(
    works: list[LearnerPlan], seeds: np.ndarray, block: int | None, progress: bool
) -> tuple[list[list[tuple[LaneIndex, BlockCurves]]], bool]:
    """All blocks of all learners over all cores or devices: per learner the blocks' lanes and records; interrupted?"""
    devices = jax.local_devices()
    workers = len(devices) if devices[0].platform != "cpu" else max(len(devices), cores())
    pieces = [_cut(work, seeds, block, workers, devices[0].platform) for work in works]
    total = sum(int(work.checkpoints[-1]) * lanes_of(piece) for work, piece in zip(works, pieces, strict=True))
    records: list[list[tuple[LaneIndex, BlockCurves]]] = []
    stop, lock = threading.Event(), threading.Lock()
    hide = None if progress else True  # None: shown on a terminal only
    with tqdm(total=total, unit=" episodes", unit_scale=True, disable=hide) as bar, ThreadPoolExecutor(workers) as pool:

        def advanced(n: int) -> None:
            with lock:
                bar.update(n)

        def one(work: LearnerPlan, lane: LaneIndex, device: Any) -> BlockCurves:
            share = lanes_of([lane])
            with jax.default_device(device):
                return run_block(work, lane, lambda n: advanced(n * share), stop.is_set)

        for work, lanes in zip(works, pieces, strict=True):
            futures: list[Future[BlockCurves]] = []
            try:
                bar.set_description(f"{work.phases[-1].learner.name}: compiling")
                with jax.default_device(devices[0]):  # as the blocks run: another context is another compilation
                    compile_block(work, lanes[0])
                bar.set_description(work.phases[-1].learner.name)
                futures += [pool.submit(one, work, x, devices[i % len(devices)]) for i, x in enumerate(lanes)]
                failed = any(future.exception() for future in wait(futures, return_when=FIRST_EXCEPTION).done)
            except KeyboardInterrupt:
                failed = True
            if failed:
                stop.set()
            records.append([(lane, future.result()) for lane, future in zip(lanes, futures, strict=False)])
            if stop.is_set():
                break
    return records, stop.is_set()


def lanes_of(lanes: Sequence[LaneIndex]) -> int:
    """How many real lanes the blocks have: padding does not count."""
    return sum(int(lane.real.sum()) for lane in lanes)


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cut(work: LearnerPlan, seeds: np.ndarray, block: int | None, workers: int, platform: str) -> list[LaneIndex]:
    """All lanes of a learner, instance by instance, in blocks of one width, padded with their last lane.

    Blocks on the host are narrow, and none is padded. Where padding costs little, few lanes go to all workers.
    """
    shape = (work.cmdp.batch_shape[0], len(work.settings), len(seeds))
    instance, setting, seed = (index.ravel() for index in np.indices(shape))
    count = len(seed)
    wanted, multiple = block, LANE_MULTIPLE
    if work.on_host:
        wanted, multiple = block or min(HOST_LANES, math.ceil(count / workers)), 1
    elif wanted is None:
        n_layers, n_states, n_actions = work.cmdp.reward.shape[:3]
        bytes_per_lane = 16 * n_layers * n_states * n_actions * (n_states + 4)
        fits = CACHE_BYTES // bytes_per_lane if platform == "cpu" else DEVICE_LANES
        wanted = min(fits, math.ceil(count / workers))
        multiple = 2 * LANE_MULTIPLE if wanted >= 2 * LANE_MULTIPLE else LANE_MULTIPLE  # whole rounds of vector code
        wanted = wanted // multiple * multiple
    width = max(1, math.ceil(wanted / multiple)) * multiple
    share = width
    if (
        block is None and platform == "cpu" and work.cmdp.reward.shape[1] > MAX_UNROLLED_STATES
    ):  # see `kernels.compiled`
        share = min(width, math.ceil(count / workers))
    cut = []
    for first in range(0, count, share):
        real = np.arange(first, first + width) < min(first + share, count)
        if work.on_host:
            real = real[real]
        at = np.minimum(np.arange(first, first + len(real)), first + real.sum() - 1)
        cut.append(LaneIndex(instance=instance[at], setting=setting[at], seed=seeds[seed[at]], real=real))
    return cut


def _complain_of_non_finite(
    works: list[LearnerPlan], records: list[list[tuple[LaneIndex, BlockCurves]]], result: Result
) -> None:
    """Raise if a value that is not finite came up, saying where first; the result so far goes with the error."""
    for work, pieces in zip(works, records, strict=False):
        for lane, record in pieces:
            bad = np.flatnonzero((record.first_bad > 0) & lane.real)
            if len(bad):
                worst = bad[np.argmin(record.first_bad[bad])]
                raise NonFiniteError(
                    f"learner {work.phases[-1].learner.name!r} on instance {work.cmdp.names[lane.instance[worst]]!r} "
                    f"(number {lane.instance[worst]}), setting {work.settings[lane.setting[worst]].label!r}, seed "
                    f"{lane.seed[worst]} had a value that is not finite in episode {record.first_bad[worst]}; try "
                    "dtype='float64' or a larger exploration. What was done before it, and all other seeds, are in "
                    "the error's .result.",
                    result,
                )
