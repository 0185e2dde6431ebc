"""Ctrl-C, once or twice, at random moments of `simulate` and `cpdpo run`: no trace, no abort, none ignored."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import cpdpo_jax as cp
from experiments.faults.kills import COMMAND
from experiments.faults.rows import HANG, Row

SECONDS = 6.0  # interval of the first interrupt
BETWEEN = 0.5  # maximum seconds between two interrupts
READY = "ready"  # printed after the imports, which run with Python's own handlers
SIMULATE = f"""
import signal
import cpdpo_jax as cp
cmdp = cp.envs.make("random", layers=2, states=2, actions=2, constraints=1, rho=0.5)
print("{READY}", flush=True)
try:
    cp.simulate(["cpdpo", "optprimaldual"], cmdp, episodes=10**8, seeds=64)
except KeyboardInterrupt:
    raise SystemExit(130)
finally:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what follows is Python's own end, not the simulator's
"""
RUN = """learners = ["uniform", "podb"]
episodes = 100_000_000
seeds = 40
environments = [{ name = "random", layers = 2, states = 2, actions = 2, constraints = 1 }]
"""
COMMANDS = ("simulate", "cpdpo run")
BAD = ("Traceback", "Exception ignored", "Fatal Python error", "fault of cpdpo")


def interrupts(count: int, place: Path) -> list[Row]:
    """One row for single and one for double interrupts; `count` of each, alternating between both commands."""
    (place / "long.toml").write_text(RUN)
    rng = random.Random(0)
    rows = []
    for name, times in (("Ctrl-C once", 1), ("Ctrl-C twice", 2)):
        wrong = [problem for i in range(count) if (problem := _interrupted(COMMANDS[i % 2], times, rng, place))]
        for problem in wrong:
            print(f"  {name}: {problem}")
        rows.append(Row(name, count, len(wrong), "simulate and cpdpo run in turns"))
    return rows


def run(quick: bool, place: Path) -> list[Row]:
    """Two rows with 20 interrupts of each kind, or 4."""
    return interrupts(4 if quick else 20, place)


def _interrupted(command: str, times: int, rng: random.Random, place: Path) -> str | None:
    """The problem of a process that is interrupted `times`; "" for none."""
    out = place / "interrupted"
    shutil.rmtree(out, ignore_errors=True)
    if command == "simulate":
        words = [sys.executable, "-c", SIMULATE]
    else:
        words = [*COMMAND, "run", str(place / "long.toml"), "--out", str(out)]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=_usual_handler
    )
    _wait_until_begun(process, command, out)
    moment = rng.uniform(0, SECONDS)
    time.sleep(moment)
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(rng.uniform(0, BETWEEN))
    try:
        _, err = process.communicate(timeout=HANG)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate(timeout=60)
        return f"{command} at {moment:.2f} s: swallowed, no end after {HANG} s"
    bad = next((word for word in BAD if word in err), None)
    if process.returncode not in (0, 130) or bad:
        return f"{command} at {moment:.2f} s: exit code {process.returncode}: {err[-400:]}"
    unreadable = _unreadable(out) if command != "simulate" else None
    return f"{command} at {moment:.2f} s: {unreadable}" if unreadable else None


def _usual_handler() -> None:
    """A process that was started in the background ignores Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _wait_until_begun(process: subprocess.Popen[str], command: str, out: Path) -> None:
    if command == "simulate":
        assert process.stdout is not None
        process.stdout.readline()
        return
    until = time.perf_counter() + HANG
    while not (out / "manifest.json").exists() and process.poll() is None and time.perf_counter() < until:
        time.sleep(0.02)


def _unreadable(out: Path) -> str | None:
    """The error on reading the stored files; None also if no block is finished."""
    try:
        cp.load_run(out)
    except ValueError as error:
        return None if "no finished block" in str(error) else str(error)
    return None
