"""Every learner with both presets and several keys, and runs in forked and spawned processes."""

from __future__ import annotations

import itertools
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np

import cpdpo_jax as cp
from cpdpo_jax.learners import base
from experiments.faults.rows import Row

EPISODES, SEEDS, KEYS = 5000, 64, (0, 1, 2)
WORLDS = ("random_episode_wise", "factored", "hard", "simple", "random", "random_uniform_pac")
# PO-DB's bounds in layers of 30 states: 0.1 s per episode of 64 seeds
SHORT = {("random_uniform_pac", name): 100 for name in ("podb", "cpdpo", "cpdpo_past")}
METHODS = ("fork", "forkserver", "spawn")
PROGRAM = """
import multiprocessing, sys
import cpdpo_jax as cp
def work(key):
    cmdp = cp.envs.make("random", layers=2, states=2, actions=2, constraints=1, rho=0.5)
    data = cp.simulate("cpdpo", cmdp, episodes=200, seeds=40, key=key, progress=False).data
    return data.strong_regret.values.tobytes(), data.final_policy.values.tobytes()
if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        found = pool.map(work, [0, 1])
    assert found == [work(0), work(1)], "other bits"
"""


def presets(quick: bool, place: Path) -> list[Row]:
    """One row: finite curves and no error. Learners on the host run 20 episodes and one seed."""
    wrong, tried = [], 0
    for environment, name in itertools.product(WORLDS[: 2 if quick else None], base.names()):
        cmdp, learner = cp.envs.make(environment), base.get(name)
        if (learner.most_constraints or np.inf) < cmdp.n_constraints:
            continue
        few = not learner.compiled
        episodes = 20 if few else EPISODES // 10 if quick else SHORT.get((environment, name), EPISODES)
        for key in KEYS[: 1 if quick else None]:
            tried += 1
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    data = cp.simulate(
                        name, cmdp, episodes=episodes, seeds=1 if few else SEEDS, key=key, hparams=list(base.PRESETS),
                        checkpoints=3, progress=False,
                    ).data  # fmt: skip
                if not np.isfinite(data.strong_regret).all():
                    wrong.append(f"{name} on {environment}, key {key}: not finite")
            except Exception as error:
                wrong.append(f"{name} on {environment}, key {key}: {type(error).__name__}: {str(error)[:200]}")
    for problem in wrong:
        print(f"  presets: {problem}")
    detail = f"{len(base.names())} learners, both presets in one call, {len(KEYS[: 1 if quick else None])} keys"
    return [Row("presets", tried, len(wrong), detail)]


def starts(quick: bool, place: Path) -> list[Row]:
    """One row: a pool of each start method, created before jax starts, gives the same bits as its parent."""
    (place / "starts.py").write_text(PROGRAM)
    wrong = []
    for method in METHODS:
        done = subprocess.run(
            [sys.executable, "starts.py", method], cwd=place, capture_output=True, text=True, timeout=600
        )
        if done.returncode or "Traceback" in done.stderr:
            wrong.append(f"{method}: exit code {done.returncode}: {done.stderr[-300:]}")
    for problem in wrong:
        print(f"  start methods: {problem}")
    return [Row("start methods", len(METHODS), len(wrong), f"{', '.join(METHODS)}: the bits of the parent")]
