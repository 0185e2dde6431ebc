"""About a hundred unusual learners, each in a separate process, which none may end.

`python -m experiments.faults.learners [WORDS]` runs those whose names contain a word (all without one) and prints a
table; exit code 1 if one aborted, raised or differs from the same run in the paper's forms.
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
from cpdpo_jax.simulation.lanes import lane_inputs, split_into_blocks
from cpdpo_jax.simulation.options import Options
from cpdpo_jax.simulation.plan import prepare
from experiments.faults.odd_learners import learners, numbers

EPISODES, SEEDS = 6, 3
TIMEOUT = 300.0  # seconds per learner; a busy machine compiles slowly


@dataclass(frozen=True)
class Outcome:
    """The outcome of a learner: "ran", "raised", "aborted" or "hung", and its last line of output."""

    name: str
    ended: str
    detail: str
    seconds: float


def outcomes(names: Iterable[str] | None = None) -> Iterable[Outcome]:
    """Run each learner in a separate process, one after the other."""
    context = multiprocessing.get_context("forkserver")  # imports once; jax starts in the children only
    context.set_forkserver_preload([learners.__module__])
    for name in learners() if names is None else names:
        heard, says = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(name, says))
        started = time.perf_counter()
        process.start()
        says.close()
        outcome = _heard(heard, process)
        process.join(10)
        if process.is_alive():
            process.kill()
            outcome = ("hung", f"after {TIMEOUT:.0f} s")
        ended, detail = outcome or ("aborted", f"exit code {process.exitcode}")
        yield Outcome(name, ended, detail, time.perf_counter() - started)


def _heard(pipe: Any, process: Any) -> tuple[str, str] | None:
    try:
        return pipe.recv() if pipe.poll(TIMEOUT) else None
    except EOFError:
        process.join()
        return None


def _run(name: str, says: Any) -> None:
    """In the child: a few episodes in fast and in paper forms, which must agree."""
    try:
        learner = learners()[name]
        cmdp = cp.make_cmdp(np.full((1, 2, 2, 2), 0.5), numbers(2, 2, 2), numbers(1, 2, 2, 2), [1.0])
        plan = prepare(learner, cmdp, episodes=EPISODES, seeds=SEEDS, options=Options()).learners[0]
        lane = split_into_blocks(plan, np.arange(SEEDS), None, 1)[0]

        def run() -> Any:
            inputs = lane_inputs(plan, lane, plan.phases[0], np.ones(len(lane.seed)))
            return advance(learner, cmdp.noise, inputs, begin(learner, cmdp.noise, inputs), 0, EPISODES)

        fast = run()
        with cp.kernels.paper_forms():
            plain = run()
        pairs = zip(jax.tree.leaves(_numbers(fast)), jax.tree.leaves(_numbers(plain)), strict=True)
        same = all(np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True) for a, b in pairs)
        says.send(("ran", "") if same else ("raised", "a different result than without acceleration"))
    except Exception as error:
        says.send(("raised", f"{type(error).__name__}: {error}".splitlines()[0][:160]))


def _numbers(state: Any) -> Any:
    """A state with its typed keys replaced by their data."""
    typed = jax.dtypes.prng_key  # pyright: ignore[reportPrivateImportUsage]
    return jax.tree.map(
        lambda leaf: jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, typed) else leaf, state
    )  # fmt: skip


def main(words: list[str]) -> int:
    """Print a table of the learners whose names contain one of the words; returns 1 if not all ran."""
    chosen = [name for name in learners() if not words or any(word in name for word in words)]
    ends: dict[str, int] = {}
    for outcome in outcomes(chosen):
        ends[outcome.ended] = ends.get(outcome.ended, 0) + 1
        print(f"{outcome.name:42} {outcome.ended:8} {outcome.seconds:5.1f} s  {outcome.detail}", flush=True)
    print(", ".join(f"{count} {ended}" for ended, count in ends.items()))
    return int(set(ends) != {"ran"})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
