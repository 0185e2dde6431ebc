"""Changes of an imported package, which resuming must detect, and contexts, which must reach `simulate`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from experiments.faults.kills import COMMAND
from experiments.faults.rows import Row

MINE = """
from dataclasses import replace
from mylib.core import FACTOR
import cpdpo_jax as cp
uniform = cp.learners.base.get("uniform")
cp.learners.register(replace(uniform, name="mine", policy=lambda p, h, s: uniform.policy(p, h, s) * FACTOR))
"""
FILES = {
    "mine.py": MINE,
    "mylib/__init__.py": "",
    "mylib/core.py": "from mylib.deep.values import VALUE\nFACTOR = VALUE",
    "mylib/deep/__init__.py": "",
    "mylib/deep/values.py": "VALUE = 1.0",
}
SWEEP = 'learners = ["mine"]\nenvironments = ["factored"]\nepisodes = 50\nseeds = 2\nimports = ["mine.py"]\n'
CONTEXTS = {
    "paper forms": "cp.kernels.paper_forms()",
    "matmul precision": 'jax.default_matmul_precision("highest")',
    "debug NaNs": "jax.debug_nans(True)",
}
PROGRAM = """
import jax
from dataclasses import replace
import cpdpo_jax as cp
from cpdpo_jax.kernels.machines import target
uniform, seen = cp.learners.base.get("uniform"), []
def policy(problem, hyper, state):
    seen.append((target.only_paper_forms(), jax.config.jax_default_matmul_precision, jax.config.jax_debug_nans))
    return uniform.policy(problem, hyper, state)
def run(name):
    seen.clear()
    cp.simulate(replace(uniform, name=name, policy=policy), "factored", episodes=20, seeds=2, progress=False)
    return set(seen)
plain = run("a")
with CONTEXT:
    inside = run("b")
assert plain != inside, (plain, inside)
"""


def stale(quick: bool, place: Path) -> list[Row]:
    """One row: after an edit of any file that the import loads, `cpdpo run` must refuse the directory."""
    edited = [name for name in FILES if FILES[name]] + ["mylib/__init__.py", "mylib/deep/__init__.py"]
    wrong: list[str] = []
    for i, name in enumerate(edited):
        home = place / f"stale-{i}"
        _write(home)
        _run(home, 0, wrong, name)
        (home / name).write_text(f"# another\n{FILES[name]}")
        _run(home, 2, wrong, name)
        _write(home)
        _run(home, 0, wrong, name)  # the original is accepted
    for problem in wrong:
        print(f"  stale code: {problem}")
    return [Row("stale code", len(edited), len(wrong), "an edit is refused, the code as it was is taken")]


def contexts(quick: bool, place: Path) -> list[Row]:
    """One row: a learner in a worker thread sees the contexts in which `simulate` was called."""
    wrong: list[str] = []
    for name, context in CONTEXTS.items():
        text = PROGRAM.replace("CONTEXT", context)
        done = subprocess.run([sys.executable, "-c", text], cwd=place, capture_output=True, text=True, timeout=600)
        wrong += [f"{name}: {done.stderr[-300:]}"] if done.returncode else []
    for problem in wrong:
        print(f"  contexts: {problem}")
    return [Row("contexts", len(CONTEXTS), len(wrong), "seen in worker threads as where simulate is called")]


def _write(home: Path) -> None:
    for name, text in (FILES | {"sweep.toml": SWEEP}).items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    for cache in home.rglob("__pycache__"):
        shutil.rmtree(cache)


def _run(home: Path, code: int, wrong: list[str], name: str) -> None:
    done = subprocess.run(
        [*COMMAND, "run", "sweep.toml", "--out", "out"], cwd=home, capture_output=True, text=True, timeout=600
    )
    if done.returncode != code or "Traceback" in done.stderr:
        wrong.append(f"{name}: exit code {done.returncode} in place of {code}: {done.stderr[-300:]}")
