"""Run directories in unusual places: read-only, with times of another clock, and where locks are lost."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax import cli
from cpdpo_jax.sweeps import integrity
from cpdpo_jax.sweeps.store import Store

pytestmark = pytest.mark.usefixtures("standard_promotion")

NOBODY = 65534
ENVIRONMENT = {"name": "random", "layers": 2, "states": 2, "actions": 2, "constraints": 1}
TABLE = {"learners": ["uniform"], "environments": [ENVIRONMENT], "episodes": [40, 60], "seeds": 40}


@contextlib.contextmanager
def unprivileged() -> Iterator[None]:
    """As a user to whom permissions apply."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


def assert_same(directory: Path, other: Path) -> None:
    """Both directories are undamaged and hold the same numbers."""
    for path in (directory, other):
        assert integrity.verify_run(Store(path)) == []
    for (*_, first), (*_, second) in zip(cp.load_run(directory), cp.load_run(other), strict=True):
        for name in first.data.data_vars:
            np.testing.assert_array_equal(first.data[name].values, second.data[name].values, str(name))


def test_a_read_only_directory_is_read_and_not_resumed(capsys):
    place = Path(tempfile.mkdtemp(prefix="cpdpo-test-"))  # pytest's own directories are closed to other users
    out = place / "a"
    try:
        place.chmod(0o755)
        cp.run(TABLE, out=out, progress=False, shard="0/2")
        for path in (*out.rglob("*"), out):
            path.chmod(0o555 if path.is_dir() else 0o444)
        with unprivileged():
            assert len(cp.load_run(out)) == 2
            assert cli.main(["status", str(out)]) == 0
            capsys.readouterr()
            assert cli.main(["resume", str(out)]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert str(out) in error
        assert "ermission denied" in error
    finally:
        shutil.rmtree(place, onerror=lambda *_: None)


@pytest.mark.parametrize("time", [0, 4e9], ids=["1970", "2096"])
def test_a_run_is_resumed_whatever_the_clock_says(tmp_path, time):
    cp.run(TABLE, out=tmp_path / "whole", progress=False)
    out = tmp_path / "a"
    cp.run(TABLE, out=out, progress=False, shard="0/2")
    for path in (*out.rglob("*"), out):
        os.utime(path, (time, time))
    before = {path: path.read_bytes() for path in out.glob("blocks/*.nc")}
    cp.run(TABLE, out=out, progress=False)
    assert {path: path.read_bytes() for path in before} == before
    assert_same(out, tmp_path / "whole")


LOST = """
import fcntl, sys
fcntl.flock = lambda *_: None
import cpdpo_jax as cp
print("ready", flush=True)
sys.stdin.readline()
cp.run(TABLE, out="a", progress=False, every=1e-6)
"""


def test_two_processes_in_one_directory_whose_locks_are_lost_store_the_same_blocks(tmp_path):
    """Neither fails, and no file is damaged."""
    cp.run(TABLE, out=tmp_path / "whole", progress=False)
    command = [sys.executable, "-c", LOST.replace("TABLE", repr(TABLE))]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, cwd=tmp_path, **pipes) for _ in range(2)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    try:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        ends = [process.communicate(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], ends
    assert_same(tmp_path / "a", tmp_path / "whole")
