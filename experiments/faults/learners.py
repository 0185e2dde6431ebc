"""Some hundred learners that do odd things, each run in a process of its own: none may end it.

`python -m experiments.faults.learners [WORDS]` runs those whose names contain a word (all without one) and prints a
table; exit code 1 if one aborted, raised or differs from the same run without what exists only for speed on a CPU.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import cpdpo_jax as cp
from cpdpo_jax.simulation.blocks import advance, begin
from cpdpo_jax.simulation.lanes import cut, lane_inputs
from cpdpo_jax.simulation.options import Options
from cpdpo_jax.simulation.plan import prepare
from experiments.faults.odd_learners import learners, numbers

EPISODES, SEEDS = 6, 3
TIMEOUT = 300.0  # seconds a learner may take: a busy machine compiles slowly


@dataclass(frozen=True)
class Outcome:
    """How a learner ended: "ran", "raised", "aborted" or "hung", and the last line of what it said."""

    name: str
    ended: str
    detail: str
    seconds: float


def outcomes(names: Iterable[str] | None = None) -> Iterable[Outcome]:
    """Run each in a process of its own, one after the other."""
    context = multiprocessing.get_context("forkserver")  # imports once; jax starts in the children only
    context.set_forkserver_preload([learners.__module__])
    for name in learners() if names is None else names:
        heard, says = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(name, says))
        started = time.perf_counter()
        process.start()
        says.close()
        told = _heard(heard, process)
        process.join(10)
        if process.is_alive():
            process.kill()
            told = ("hung", f"after {TIMEOUT:.0f} s")
        ended, detail = told or ("aborted", f"exit code {process.exitcode}")
        yield Outcome(name, ended, detail, time.perf_counter() - started)


def _heard(pipe: Any, process: Any) -> tuple[str, str] | None:
    try:
        return pipe.recv() if pipe.poll(TIMEOUT) else None
    except EOFError:
        process.join()
        return None


def _run(name: str, says: Any) -> None:
    """In the child: some episodes with and without what exists only for speed, which must agree."""
    try:
        learner = learners()[name]
        cmdp = cp.make_cmdp(np.full((1, 2, 2, 2), 0.5), numbers(2, 2, 2), numbers(1, 2, 2, 2), [1.0])
        plan = prepare(learner, cmdp, episodes=EPISODES, seeds=SEEDS, options=Options()).learners[0]
        lane = cut(plan, np.arange(SEEDS), None, 1, "cpu")[0]

        def run() -> Any:
            inputs = lane_inputs(plan, lane, plan.phases[0], np.ones(len(lane.seed)))
            return advance(learner, cmdp.noise, inputs, begin(learner, inputs), 0, EPISODES)

        fast = run()
        with cp.kernels.cpu_acceleration(False):
            plain = run()
        pairs = zip(jax.tree.leaves(_numbers(fast)), jax.tree.leaves(_numbers(plain)), strict=True)
        same = all(np.allclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True) for one, other in pairs)
        says.send(("ran", "") if same else ("raised", "another result than without acceleration"))
    except Exception as error:
        says.send(("raised", f"{type(error).__name__}: {error}".splitlines()[0][:160]))


def _numbers(state: Any) -> Any:
    """A state whose typed keys are their words."""
    typed = jax.dtypes.prng_key  # pyright: ignore[reportPrivateImportUsage]
    return jax.tree.map(
        lambda leaf: jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, typed) else leaf, state
    )  # fmt: skip


def main(words: list[str]) -> int:
    """Print a table of those whose names contain one of the words; 1 if not all ran."""
    chosen = [name for name in learners() if not words or any(word in name for word in words)]
    ends: dict[str, int] = {}
    for outcome in outcomes(chosen):
        ends[outcome.ended] = ends.get(outcome.ended, 0) + 1
        print(f"{outcome.name:42} {outcome.ended:8} {outcome.seconds:5.1f} s  {outcome.detail}", flush=True)
    print(", ".join(f"{count} {ended}" for ended, count in ends.items()))
    return int(set(ends) != {"ran"})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
