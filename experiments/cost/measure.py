"""Time one learner at one size; `python -m experiments.cost.measure JSON` prints the result as JSON.

Compilation is the first call less the same call again. Time per episode is the difference of two warm calls, of n and
of 3 n episodes, so that the fixed cost of a call cancels; n is increased until the shorter call lasts long enough.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import cpdpo_jax as cp
from cpdpo_jax.common import files
from experiments import common
from experiments.cost import sweep
from experiments.cost.sweep import PROGRAMS, Sizes

REPEATS = 5
FIRST = 16  # episodes of the shortest timed call
LEAST = 1e-9  # seconds per episode and seed; smaller differences are noise


def run(directory: Path, cells: Sequence[sweep.Cell], on: str = "") -> None:
    """Measure the cells that are not stored, on this machine; larger sizes than one that took too long are skipped."""
    over: dict[tuple[str, str], str] = {}
    for cell in cells:
        of, path = cell.of, directory / f"{cell.name}.json"
        if not path.is_file():
            common.say(cell.name)
            started = time.perf_counter()
            if too_long := over.get((cell.learner, cell.axis)):
                answer = {"learner": cell.learner, "sizes": cell.sizes, "skipped": f"not tried after {too_long}"}
            elif of.limit is None:
                answer = measure(cell.learner, cell.sizes, of.lanes, of.seconds)
            else:
                answer = apart(cell.learner, cell.sizes, of.lanes, of.seconds, of.limit)
            if "skipped" in answer:
                common.say(f"  skipped: {answer['skipped']}")
            files.write(path, json.dumps(answer | {"seconds": round(time.perf_counter() - started, 1)}, indent=1))
        if "skipped" in json.loads(path.read_text()):
            over.setdefault((cell.learner, cell.axis), cell.name)


def read(directory: Path, cell: sweep.Cell) -> dict[str, Any] | None:
    """What was measured."""
    path = directory / f"{cell.name}.json"
    return json.loads(path.read_text()) if path.is_file() else None


def measure(learner: str, sizes: Sizes, lanes: int, seconds: float) -> dict[str, Any]:
    """Seconds of compilation, and microseconds per episode and seed of each repeat on all cores."""
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
        "compile_seconds": max(cold - warm, 0.0), "microseconds": [1e6 * seconds for seconds in spent],
    }  # fmt: skip


def apart(learner: str, sizes: Sizes, lanes: int, seconds: float, limit: float) -> dict[str, Any]:
    """Measure in a separate process with an empty cache; {"skipped": reason} if it takes over `limit` seconds."""
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
