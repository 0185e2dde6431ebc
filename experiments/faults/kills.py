"""kill -9 at random moments of a run, from the first import to the last write, and full disks."""

from __future__ import annotations

import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import cpdpo_jax as cp
from cpdpo_jax.common import files
from experiments.faults.rows import Row, same

COMMAND = [sys.executable, "-m", "cpdpo_jax.cli"]
SWEEP = """learners = ["uniform", "podb"]
episodes = [30_000, 60_000]
seeds = 40
environments = [{ name = "random", layers = 2, states = 2, actions = 2, constraints = 1, instances = 2 }]
"""


def run(quick: bool, place: Path) -> list[Row]:
    """One row: kills."""
    duration, reference, _ = _left_alone(place)
    return [_kills(8 if quick else 100, duration, reference, place)]


def disk(quick: bool, place: Path) -> list[Row]:
    """One row: full disks."""
    _, reference, whole = _left_alone(place)
    return [_full(quick, reference, whole, place)]


def _left_alone(place: Path) -> tuple[float, Any, Path]:
    """The uninterrupted run: its duration, results and directory."""
    (place / "sweep.toml").write_text(SWEEP)
    whole = place / "whole"
    subprocess.run(_go(whole, place), check=True, capture_output=True, timeout=600)  # fills the compilation cache
    shutil.rmtree(whole)
    started = time.perf_counter()
    subprocess.run(_go(whole, place), check=True, capture_output=True, timeout=600)
    return time.perf_counter() - started, cp.load_run(whole), whole


def _go(out: Path, place: Path) -> list[str]:
    """The command that starts or resumes a run there."""
    words = ["resume", str(out)] if (out / "manifest.json").exists() else ["run", str(place / "sweep.toml")]
    return [*COMMAND, *words, *(["--out", str(out)] if words[0] == "run" else []), "--checkpoint-every", "0.05"]


def _kills(times: int, duration: float, reference: Any, place: Path) -> Row:
    """Kill and resume runs, with a new directory after each finished one, which is compared."""
    rng, stages, wrong, compared = random.Random(0), Counter(), [], 0
    out, killed = place / "killed-0", 0
    while killed < times:
        process = subprocess.Popen(_go(out, place), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        time.sleep(rng.uniform(0.05, 1.1 * duration))
        process.send_signal(signal.SIGKILL)
        _, err = process.communicate(timeout=60)
        if process.returncode == -signal.SIGKILL:
            killed += 1
            stages[_stage(out)] += 1
            continue
        if process.returncode:
            wrong.append(f"code {process.returncode}: {err[-300:]}")
        wrong += _compare(out, reference)
        compared += 1
        shutil.rmtree(out)
        out = place / f"killed-{compared}"
    done = subprocess.run(_go(out, place), capture_output=True, text=True, timeout=600)
    wrong += ([f"code {done.returncode}: {done.stderr[-300:]}"] if done.returncode else []) + _compare(out, reference)
    for problem in wrong:
        print(f"  kill -9: {problem}")
    where = ", ".join(f"{n} {stage}" for stage, n in stages.most_common())
    return Row(
        "kill -9 at a random moment", killed, len(wrong), f"{where}; {compared + 1} finished runs, all bits equal"
    )


def _stage(out: Path) -> str:
    """The progress of a killed run."""
    if list(out.rglob(f".*{files.SUFFIX}")):
        return "in the middle of a write"
    if not (out / "manifest.json").exists():
        return "before the first file" if not out.exists() else "while it began"
    if list(out.glob("checkpoints/*.npz")):
        return "with snapshots"
    return "after the last block" if len(list(out.glob("blocks/*.nc"))) == 16 else "between blocks"


def _compare(out: Path, reference: Any) -> list[str]:
    left = [path.name for path in out.rglob("*") if path.name.endswith((files.SUFFIX, ".npz"))]
    return ([] if same(cp.load_run(out), reference) else ["other bits"]) + [f"left over: {name}" for name in left]


def _full(quick: bool, reference: Any, whole: Path, place: Path) -> Row:
    """Run with a limit on file sizes or a small disk, then with enough space; results must be bit-identical.

    Below a few bytes Python itself finds no room for temporary files and reports that.
    """
    biggest = max(path.stat().st_size for path in whole.rglob("*"))
    limits = [16, 300, 5000, biggest // 2, biggest - 1][: 2 if quick else None]
    wrong: list[str] = []
    for limit in limits:
        out = place / "limited"
        wrong += _without_room(
            out, place, lambda limit=limit: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        )
        wrong += _with_room(out, out, place, reference)
        shutil.rmtree(out)
    disks = 0
    for size in ("16k", "64k", "300k", "900k")[: 1 if quick else None]:
        disk = place / "disk"
        disk.mkdir(exist_ok=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)]
        if os.geteuid() or subprocess.run(mount, capture_output=True, timeout=600).returncode:
            break
        disks += 1
        try:
            wrong += _without_room(disk / "run", place, None)
            copy = place / "copied"
            shutil.copytree(disk / "run", copy, dirs_exist_ok=True) if (disk / "run").exists() else copy.mkdir()
            wrong += _with_room(copy, disk / "run", place, reference)
            shutil.rmtree(copy)
        finally:
            subprocess.run(["umount", str(disk)], check=True, timeout=600)
    for problem in wrong:
        print(f"  disk full: {problem}")
    detail = f"{len(limits)} limits on files, {disks} small disks: one sentence; with room the same bits"
    return Row("disk full", len(limits) + disks, len(wrong), detail)


def _without_room(out: Path, place: Path, before: Any) -> list[str]:
    environment = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"}  # the cache's disk is not tested
    done = subprocess.run(
        _go(out, place), capture_output=True, text=True, preexec_fn=before, env=environment, timeout=600
    )
    messages = [line for line in done.stderr.splitlines() if re.match(r"cpdpo: (?!\d+% )", line) or "Error" in line]
    good = done.returncode == 1 and len(messages) == 1 and "the disk is full" in messages[0] and str(out) in messages[0]
    return [] if good else [f"code {done.returncode}: {done.stderr[-300:]}"]


def _with_room(out: Path, was: Path, place: Path, reference: Any) -> list[str]:
    done = subprocess.run(_go(out, place), capture_output=True, text=True, timeout=600)
    if done.returncode:
        return [f"with room, code {done.returncode}: {done.stderr[-300:].replace(str(was), str(out))}"]
    return _compare(out, reference)
