"""Timing of `simulate` on a random CMDP: seconds per episode, without the start of a run."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import cpdpo_jax as cp
from experiments.speed.naive_numpy import constants

HORIZON = 10**6  # the T of the constants, as in the anchor
MOST = 4_000_000  # maximum episodes of a measurement
ROUNDS, MORE_ROUNDS = 2, 3  # MORE_ROUNDS if the machine is too busy
WARM = 2000  # first episodes with frequent epochs; excluded if they do not take too long


class Size(NamedTuple):
    """Size of a CMDP."""

    layers: int
    states: int
    actions: int
    constraints: int


class Job(NamedTuple):
    """A simulation."""

    size: Size
    seeds: int
    learner: str = "cpdpo"


class Span(NamedTuple):
    """The measured episodes, after `first` and up to `last`."""

    first: int
    last: int


@functools.cache
def instance(size: Size) -> cp.CMDP:
    """A random CMDP with rho = 0.5, or with a smaller rho if there is none."""
    for rho in (0.5, 0.2, 0.05):
        try:
            return cp.envs.make("random", **size._asdict(), rho=rho, key=1)
        except ValueError:
            continue
    raise ValueError(
        f"sizes = {','.join(map(str, size))} has no random CMDP whose constraints all bind with rho of at least 0.05; "
        "give more layers, states or actions, or fewer constraints."
    )


def simulated(job: Job, episodes: int) -> float:
    """Seconds of `simulate` including metrics, without the exact solution of the instance."""
    hparams = theory(job.size, episodes) if job.learner == "cpdpo" else "tuned"
    result = cp.simulate(
        job.learner, instance(job.size), episodes=episodes, seeds=job.seeds, hparams=hparams, checkpoints=1,
        progress=False,
    )  # fmt: skip
    return float(result.data.attrs["seconds"])


def theory(size: Size, episodes: int) -> dict[str, Any]:
    """The "theory" preset for T = HORIZON in a run of `episodes`; the confidence multipliers correct the logarithms."""
    far, near = constants(size, 1.0, HORIZON), constants(size, 1.0, episodes)
    return {
        "preset": "theory",
        "learning_rate": far.learning_rate,
        "exploration": far.exploration,
        "transition_confidence": far.log_transition / near.log_transition,
        "reward_confidence": far.log_reward / near.log_reward,
        "cost_confidence": far.log_cost / near.log_cost,
    }


def compile_seconds(job: Job) -> float:
    """Seconds of the first call beyond a second one: tracing, lowering, and compiling or reading the cache."""
    first = simulated(job, 1)
    return max(first - simulated(job, 1), 0.0)


def span(run: Callable[[int], float], seconds: float) -> Span:
    """Episodes that take about `seconds`, after a warm-up that takes no longer; `run` maps episodes to seconds."""
    n, spent = 1, 0.0
    start = min(run(1), run(1))  # the first call may compile
    while spent < seconds / 4 and n < MOST:
        n *= 4
        spent = min(run(n), run(n)) - start
    enough = min(MOST, max(1, round(n * seconds / spent)))
    first = min(enough, WARM)
    return Span(first, first + enough)


def per_episode(runs: dict[str, Callable[[int], float]], over: Span) -> dict[str, float]:
    """Seconds per episode of each run, in turn: the best time up to `last` minus the best time up to `first`.

    The best of each and not the best difference, which a disturbed warm-up would make too small. If a difference is
    still too small to be true there are more rounds and, if they do not help, the warm-up is counted too.
    """
    best = {name: [float("inf")] * 2 for name in runs}
    share = (over.last - over.first) / over.last

    def credible(early: float, late: float) -> bool:
        return late - early > share * late / 2

    for attempt in range(ROUNDS + MORE_ROUNDS):
        if attempt >= ROUNDS and all(credible(*pair) for pair in best.values()):
            break
        for name, run in runs.items():
            best[name] = [min(old, run(n)) for old, n in zip(best[name], over, strict=True)]
    return {
        name: (late - early) / (over.last - over.first) if credible(early, late) else late / over.last
        for name, (early, late) in best.items()
    }


def seconds_per_call(function: Callable[[], Any], seconds: float) -> float:
    """Seconds of a call of a function that was called before: the best of three rounds of `seconds` / 3."""
    best = float("inf")
    for _ in range(3):
        started, calls = time.perf_counter(), 0
        while (spent := time.perf_counter() - started) < seconds / 3 or not calls:
            function()
            calls += 1
        best = min(best, spent / calls)
    return best
