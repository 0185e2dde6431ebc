"""Timing one learner at one size; `python -m experiments.cost.measure JSON` prints the answer as JSON.

Compilation is the first call less the same call again. Time per episode is the difference of two warm calls, of n and
of 3 n episodes, so that what every call costs does not count; n is raised until the short one lasts long enough.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import numpy as np

import cpdpo_jax as cp
from experiments.cost.sweep import PROGRAMS, Sizes

REPEATS = 5
FIRST = 16  # episodes of the shortest call that is timed
LEAST = 1e-9  # seconds per episode and seed: a difference below it is noise of a busy machine


def measure(learner: str, sizes: Sizes, lanes: int, seconds: float) -> dict[str, Any]:
    """Seconds of compilation, and microseconds per episode and seed of each repeat, all cores together."""
    cmdp = cp.envs.make("random", **sizes, binding=False, key=1)
    seeds = max(2, lanes // 16) if learner in PROGRAMS else lanes

    def run(episodes: int) -> float:
        result = cp.simulate(learner, cmdp, episodes=episodes, seeds=seeds, checkpoints=1, progress=False)
        return float(result.data.attrs["seconds"])

    cold, warm = run(1), run(1)
    n = FIRST
    while run(n) - warm < seconds:
        n *= 4
    spent = [max((run(3 * n) - run(n)) / (2 * n * seeds), LEAST) for _ in range(REPEATS)]
    return {
        "learner": learner, "sizes": sizes, "seeds": seeds, "episodes": n, "cores": os.cpu_count(),
        "compile_seconds": max(cold - warm, 0.0), "microseconds": [1e6 * one for one in spent],
    }  # fmt: skip


def apart(learner: str, sizes: Sizes, lanes: int, seconds: float, limit: float) -> dict[str, Any]:
    """The same in a process of its own, without stored compilations; {"skipped": why} if it takes over `limit` s."""
    question = json.dumps([learner, sizes, lanes, seconds])
    command = [sys.executable, "-m", "experiments.cost.measure", question]
    environment = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True) as child:
        try:
            answer, _ = child.communicate(timeout=limit)
        except BaseException as error:
            os.killpg(child.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                return {"learner": learner, "sizes": sizes, "skipped": f"over {limit:g} s"}
            raise
    if child.returncode:
        raise ValueError(f"{' '.join(command)} ended with {child.returncode}; see above.")
    return json.loads(answer.splitlines()[-1])


def median(answer: dict[str, Any]) -> float:
    """Microseconds per episode and seed; NaN for what was skipped."""
    return float(np.median(answer.get("microseconds", [np.nan])))


if __name__ == "__main__":
    print(json.dumps(measure(*json.loads(sys.argv[1]))))
