"""`make_train` of every compiled learner: 1, 2 and 7 checkpoints, 1, 3, 16 and 64 seeds, one process per learner.

python -m experiments.faults.trains [LEARNER...]
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from cpdpo_jax.learners import base
from experiments.faults.rows import Row

CHECKPOINTS, SEEDS = (1, 2, 7), (1, 3, 16, 64)
TIMEOUT = 900
PROGRAM = """
import json, sys
import jax
import numpy as np
import cpdpo_jax as cp
cmdp = cp.envs.make("random", layers=2, states=2, actions=2, constraints=1, rho=0.5)
for checkpoints in json.loads(sys.argv[2]):
    train = cp.make_train(sys.argv[1], cmdp, episodes=8, checkpoints=checkpoints)
    mapped = jax.jit(jax.vmap(train))
    for seeds in json.loads(sys.argv[3]):
        curves = mapped(train.keys(seeds))
        assert curves.strong_regret.shape == (seeds, len(train.checkpoints)), curves.strong_regret.shape
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(curves))
"""


def compiled() -> list[str]:
    """The registered learners that `make_train` accepts."""
    return [name for name in base.names() if base.get(name).compiled]


def fault(learner: str, checkpoints: tuple[int, ...] = CHECKPOINTS, seeds: tuple[int, ...] = SEEDS) -> str | None:
    """The exit of the learner's process if its code is not 0."""
    words = [sys.executable, "-c", PROGRAM, learner, json.dumps(checkpoints), json.dumps(seeds)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return f"{learner}: no end after {TIMEOUT} s"
    return f"{learner}: exit code {done.returncode}: {done.stderr[-300:]}" if done.returncode else None


def run(quick: bool, place: Path) -> list[Row]:
    """One row: every process must end with exit code 0."""
    names = compiled()[: 2 if quick else None]
    wrong = [found for name in names if (found := fault(name))]
    for problem in wrong:
        print(f"  make_train: {problem}")
    tried = len(names) * len(CHECKPOINTS) * len(SEEDS)
    detail = f"{len(names)} learners x {len(CHECKPOINTS)} numbers of checkpoints x {len(SEEDS)} of seeds, all finite"
    return [Row("make_train", tried, len(wrong), detail)]


if __name__ == "__main__":
    for name in sys.argv[1:] or compiled():
        print(name, fault(name) or "exit code 0", flush=True)
