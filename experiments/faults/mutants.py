"""Mutants of the package's own source, run against the tests: the score of every subpackage, and the survivors.

python -m experiments.faults.mutants [ROOM | FILE | FILE:LINE ...] [--sample N] [--seed K] [--budget S] [--place DIR]

It works in a copy of the tree in DIR and runs one process at a time. The first run records which tests run which lines
(in DIR, for later runs). A mutant is killed by the first test that fails; a time-out counts as killed.
"""

from __future__ import annotations

import argparse
import compileall
import importlib
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from experiments.faults.mutant_sources import Mutant, mutants
from experiments.faults.mutant_tests import TREE, Coverage, forked

TESTS = {  # the tests of a room, unless --tests gives others: a survivor may still be noticed by the rest
    "sweeps": ("sweeps", "cli"),
    "results": ("results", "sweeps/test_report.py"),
    "simulation": ("simulation",),
    "cli": ("cli", "sweeps/test_bad_input.py", "sweeps/test_run.py"),
    "learners": ("learners", "simulation/test_monitor.py", "simulation/test_monitor_learnt_cap.py"),
    "kernels": ("kernels", "simulation/test_randomness.py"),
    "common": ("common", "cli", "sweeps", "simulation/test_workers.py"),
    "envs": ("envs",),
    "exact": ("exact",),
}
IMPORTED_ONCE = (  # by the parent of all processes, but nothing of the package
    "pytest", "jax", "jax.numpy", "optax", "chex", "numba", "scipy.optimize", "scipy.special",
    "scipy.sparse", "highspy", "xarray", "h5netcdf", "h5py", "matplotlib.pyplot", "tqdm", "tyro",
)  # fmt: skip


class Outcome(NamedTuple):
    """A mutant and the outcome of its tests."""

    path: str
    mutant: Mutant
    ended: str  # "killed", "time", "survived" or "no test"


def copy_tree(place: Path) -> Path:
    """A copy of the tree, compiled."""
    root = place / "tree"
    shutil.rmtree(root, ignore_errors=True)
    ignored = (".git", ".venv", "__pycache__", "build", "runs", ".*_cache")
    shutil.copytree(TREE, root, ignore=shutil.ignore_patterns(*ignored))
    compileall.compile_dir(root / "cpdpo_jax", quiet=1)
    return root


def selected(target: str, count: int | None, rng: random.Random) -> list[tuple[str, Mutant]]:
    """Some or all mutants of a room, a file, or a line FILE:LINE."""
    name, _, line = target.partition(":")
    path = TREE / name if name.endswith(".py") else TREE / "cpdpo_jax" / name
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    if not files:
        raise SystemExit(f"{target!r} is neither a room of cpdpo_jax nor a file; give, for example, sweeps.")
    found = [(file.relative_to(TREE).as_posix(), each) for file in files for each in mutants(file.read_text())]
    found = [(file, each) for file, each in found if not line or each.line == int(line)]
    return sorted(rng.sample(found, min(count or len(found), len(found))), key=lambda x: (x[0], x[1].line))


def test_files(paths: set[str], given: list[str] | None) -> list[str]:
    """The given test files and folders, or those of the rooms of these sources."""
    tests = given or {f"tests/{test}" for path in paths for test in TESTS[Path(path).parts[1]]}
    places = [TREE / test for test in tests]
    files = {file for place in places for file in ([place] if place.is_file() else place.rglob("test_*.py"))}
    return sorted(file.relative_to(TREE).as_posix() for file in files)


def outcome(root: Path, tests: Coverage, path: str, mutant: Mutant, budget: float) -> Outcome:
    """Run the tests on a mutant."""
    chosen = tests.choose(path, mutant.lines, budget)
    if not chosen:
        return Outcome(path, mutant, "no test")
    file = root / path
    original, times = file.read_bytes(), file.stat()
    file.write_text(mutant.source)
    os.utime(file, (times.st_atime, times.st_mtime + 100))  # not the compiled original
    try:
        busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))  # a process has a share of the machine
        code = forked(root, ["-x", *chosen], busy * (60 + 4 * sum(tests.seconds[test] for test in chosen)))
    finally:
        file.write_bytes(original)
        os.utime(file, (times.st_atime, times.st_mtime))
    return Outcome(path, mutant, "time" if code is None else "killed" if code else "survived")


def main(arguments: list[str] | None = None) -> int:
    """Print the survivors and the scores; returns 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", nargs="*", default=["sweeps", "results", "simulation", "cli", "learners", "common"])
    parser.add_argument("--sample", type=int, help="mutants of each target, at random; all by default")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--tests", nargs="+", help="files or folders of tests; those of the room by default")
    parser.add_argument("--place", type=Path, default=Path(tempfile.gettempdir(), f"cpdpo-mutants-{os.getuid()}"))
    parser.add_argument("--budget", type=float, default=40, help="CPU seconds of tests for one mutant")
    args = parser.parse_args(arguments)
    args.place.mkdir(mode=0o700, exist_ok=True)
    os.environ |= {
        "JAX_COMPILATION_CACHE_DIR": str(args.place / "jax"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "MPLBACKEND": "agg",
    }  # fmt: skip
    for name in IMPORTED_ONCE:
        importlib.import_module(name)
    root = copy_tree(args.place)
    rng = random.Random(args.seed)
    chosen = {target: selected(target, args.sample, rng) for target in args.target}
    tests = Coverage(root, args.place)
    for file in test_files({path for mutated in chosen.values() for path, _ in mutated}, args.tests):
        tests.record(file)
    for target, mutated in chosen.items():
        started, ends = time.monotonic(), []
        for path, mutant in mutated:
            ends.append(outcome(root, tests, path, mutant, args.budget))
            if ends[-1].ended != "killed":
                print(f"{path}:{mutant.line}: {ends[-1].ended}: {mutant.change}", flush=True)
        counts = {end: sum(x.ended == end for x in ends) for end in ("killed", "time", "survived", "no test")}
        noticed = (counts["killed"] + counts["time"]) / max(len(ends), 1)
        print(f"{target}: {noticed:.0%} of {len(ends)}, {counts}, {time.monotonic() - started:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
