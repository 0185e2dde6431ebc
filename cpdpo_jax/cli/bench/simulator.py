"""Timing the simulator as users call it, in a process of its own that is pinned to the cores it may use.

A process of its own, because jax's threads cannot be pinned later, because a start from nothing is what compile time
means, and because the anchor must run on the same cores.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from tqdm.auto import tqdm

HORIZON = 10**6  # the T of the constants, as in the anchor
MOST = 4_000_000  # episodes of one measurement
MORE_ROUNDS = 3  # where the machine was too busy
WARM = 2000  # first episodes, when epochs change often, that are left out where they do not take too long


class Size(NamedTuple):
    """Of a CMDP."""

    layers: int
    states: int
    actions: int
    constraints: int

    def __str__(self) -> str:
        return f"({','.join(map(str, self))})"


class Job(NamedTuple):
    """What is simulated."""

    size: Size
    seeds: int
    learner: str = "cpdpo"


class Worker:
    """A fresh process on the first `cores` of the cores allowed here; call it with a function and its arguments."""

    def __init__(self, cores: int, cache: str | None = None):
        """`cache` is the directory of compiled programs; None is the user's own."""
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(there, cores, cache), daemon=True)
        self._process.start()
        there.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._here.close()
        self._process.join(0.5)
        self._process.terminate()  # if it is busy: an error or Ctrl-C here
        self._process.join()

    def __call__(self, function: Callable, *arguments: Any) -> Any:
        """What the function returns there; what it raises is raised here."""
        self._here.send((function, arguments))
        try:
            done, answer = self._here.recv()
        except EOFError:
            raise ChildProcessError("a measuring process of cpdpo bench died; is there enough memory?") from None
        if not done:
            raise answer
        return answer


def _serve(there: Connection, cores: int, cache: str | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    tqdm.set_lock(threading.RLock())  # its own is shared between processes, and left behind by one that is ended
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    if cache is not None:
        import jax

        jax.config.update("jax_compilation_cache_dir", cache)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    while True:
        try:
            function, arguments = there.recv()
        except EOFError:
            return
        try:
            answer = True, function(*arguments)
        except Exception as error:
            answer = False, error
        there.send(answer)


@functools.cache
def instance(size: Size) -> Any:
    """A random CMDP of that size with rho = 0.5 or, where there is none, less."""
    from cpdpo_jax import envs

    for rho in (0.5, 0.2, 0.05):
        try:
            return envs.make("random", **size._asdict(), rho=rho, key=1)
        except ValueError:
            continue
    raise ValueError(
        f"sizes = {','.join(map(str, size))} has no random CMDP whose constraints all bind with rho of at least 0.05; "
        "give more layers, states or actions, or fewer constraints."
    )


def simulated(job: Job, episodes: int) -> float:
    """Seconds of `simulate`, metrics included: blocks over threads, after the instance was solved."""
    from cpdpo_jax.simulation.simulate import simulate

    cmdp = instance(job.size)
    hparams = _theory(cmdp, episodes) if job.learner == "cpdpo" else "tuned"
    result = simulate(
        job.learner, cmdp, episodes=episodes, seeds=job.seeds, hparams=hparams, checkpoints=1, progress=False
    )
    return float(result.data.attrs["seconds"])


def _theory(cmdp: Any, episodes: int) -> dict[str, Any]:
    """The "theory" preset of T = HORIZON in a run of `episodes`; its logarithms through the confidence multipliers."""
    import numpy as np

    from cpdpo_jax.envs.build import stack
    from cpdpo_jax.learners import base, cpdpo, podb

    def problem(horizon: int) -> base.Problem:
        return base.make_problem(stack([cmdp]), episodes=horizon, delta=0.05, slater_margin=np.ones(1))

    far = cpdpo.hyperparameters(problem(HORIZON), "theory")
    logs = [float(podb.log_pairs(problem(horizon))[0]) for horizon in (HORIZON, episodes)]
    cost = [log + np.log(cmdp.n_constraints) for log in logs]
    return {
        "preset": "theory",
        "learning_rate": float(far.learning_rate[0]),
        "exploration": float(far.exploration[0]),
        "transition_confidence": logs[0] / logs[1],
        "reward_confidence": logs[0] / logs[1],
        "cost_confidence": float(cost[0] / cost[1]),
    }


def compiled(job: Job) -> float:
    """Seconds of the first call beyond a second one: tracing, lowering, and compiling or reading what was compiled."""
    first = simulated(job, 1)
    return max(first - simulated(job, 1), 0.0)


def peak_memory(job: Job, episodes: int) -> float:
    """MiB of this process after a run."""
    simulated(job, episodes)
    unit = 2**20 if os.uname().sysname == "Darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


class Span(NamedTuple):
    """The episodes that are measured: those after `first` up to `last`."""

    first: int
    last: int


def span(run: Callable[[int], float], seconds: float) -> Span:
    """Episodes that take about `seconds`, after a warm-up that takes no longer; what a call costs before is apart."""
    n, spent = 1, 0.0
    before = min(run(1), run(1))  # the best of two: the first may compile, and machines are busy
    while spent < seconds / 4 and n < MOST:
        n *= 4
        spent = min(run(n), run(n)) - before
    enough = min(MOST, max(1, round(n * seconds / spent)))
    first = min(enough, WARM)
    return Span(first, first + enough)


def per_episode(runs: dict[str, Callable[[int], float]], over: Span, rounds: int) -> dict[str, float]:
    """Seconds per episode of each, by turns: the best time up to `last` minus the best up to `first`.

    The best of each, not the best difference: a disturbed warm-up would make that too good. On a busy machine even
    that may be; then there are more rounds and, if they do not help, the start is counted too.
    """
    best = {name: [float("inf")] * 2 for name in runs}
    share = (over.last - over.first) / over.last

    def credible(early: float, late: float) -> bool:
        return late - early > share * late / 2

    for turn in range(rounds + MORE_ROUNDS):
        if turn >= rounds and all(credible(*pair) for pair in best.values()):
            break
        for name, run in runs.items():
            best[name] = [min(old, run(n)) for old, n in zip(best[name], over, strict=True)]
    return {
        name: (late - early) / (over.last - over.first) if credible(early, late) else late / over.last
        for name, (early, late) in best.items()
    }


def seconds_per_call(function: Callable[[], Any], seconds: float) -> float:
    """Of something that was called before; calls until the time is over, the best of three thirds."""
    best = float("inf")
    for _ in range(3):
        started, calls = time.perf_counter(), 0
        while (spent := time.perf_counter() - started) < seconds / 3 or not calls:
            function()
            calls += 1
        best = min(best, spent / calls)
    return best
