"""Shards of a run: at once in one directory or in several, one of them killed, and the whole is what it would be."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import cpdpo_jax as cp
from cpdpo_jax import cli
from cpdpo_jax.common import files
from cpdpo_jax.sweeps import locks, shards
from cpdpo_jax.sweeps.load import load_runs, rows
from cpdpo_jax.sweeps.run import build_config
from cpdpo_jax.sweeps.shards import Shard
from cpdpo_jax.sweeps.specification import expand
from cpdpo_jax.sweeps.store import Store
from tests.sweeps.test_store import contents

ENVIRONMENT = "random:layers=2,states=2,actions=2,constraints=1,instances=4"
TABLE = {"learners": ["uniform"], "environments": [ENVIRONMENT], "episodes": 60, "seeds": 40}

pytestmark = pytest.mark.optimised


def flags(out: Path, shard: str, episodes: int = 60) -> list[str]:
    of = ["--learner", "uniform", "--env", ENVIRONMENT, "--episodes", str(episodes), "--seeds", "40"]
    return ["run", *of, "--out", str(out), "--shard", shard]


def test_shards_part_the_blocks():
    blocks = expand(build_config(TABLE))
    parts = [Shard(i, 3).select(blocks) for i in range(3)]
    assert sorted(key for part in parts for key in part) == sorted(blocks)
    assert [len(part) for part in parts] == [3, 3, 2]
    assert Shard(7, 20).select(blocks)
    assert Shard(8, 20).select(blocks) == {}


@pytest.mark.parametrize("text", ["3/3", "-1/3", "1", "1/0", "a/b", "1/3/4"])
def test_what_is_no_shard(text, tmp_path, capsys):
    with pytest.raises(ValueError, match="is not I/N with I from 0 to N-1"):
        shards.parse(text)
    assert cli.main(flags(tmp_path / "a", text if text[0] != "-" else "x")) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "a").exists()


@pytest.mark.exhaustive
@pytest.mark.slow
def test_three_at_once_one_killed_and_run_again(tmp_path, capsys):
    """All three in one directory from nothing; the report of the whole has the rows of the run without shards."""
    out, episodes = tmp_path / "a", 400_000
    command = [sys.executable, "-m", "cpdpo_jax.cli"]
    quick = ["--checkpoint-every", "0.1"]
    at_once = [subprocess.Popen([*command, *flags(out, f"{i}/3", episodes), *quick], stdout=subprocess.DEVNULL)
               for i in range(3)]  # fmt: skip
    mine = Shard(1, 3).select(expand(build_config(TABLE | {"episodes": episodes})))
    deadline = time.monotonic() + 300
    while not any(Store(out).checkpoint_path(key).exists() for key in mine) and time.monotonic() < deadline:
        time.sleep(0.02)
    at_once[1].kill()
    assert [process.wait(timeout=300) for process in at_once] == [0, -9, 0]
    whole = tmp_path / "whole"
    assert cli.main([*flags(whole, "0/1", episodes), "--json"]) == 0
    expected = json.loads(capsys.readouterr().out)["rows"]
    assert cli.main(["status", str(out), "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["state"], status["blocks"]) == ("stopped", 8)
    assert status["finished"] < 8
    assert cli.main([*flags(out, "1/3", episodes), *quick, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == expected
    assert contents(out) == contents(whole)
    assert cli.main(["status", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "finished"
    assert not list(out.rglob(f"*{files.SUFFIX}"))
    assert not list(out.rglob("*.npz"))
    sessions = [len(json.loads((out / "shards" / f"{i}-of-3.json").read_text())["sessions"]) for i in range(3)]
    assert sessions == [1, 2, 1]


def test_shards_in_directories_of_their_own(tmp_path, capsys):
    for i in range(2):
        cp.run(TABLE, out=tmp_path / str(i), shard=f"{i}/2", progress=False)
    both = [str(tmp_path / str(i)) for i in range(2)]
    assert cli.main(["status", both[0], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["finished"] == 4
    assert cli.main(["status", *both, "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["state"], status["blocks"], status["finished"]) == ("finished", 8, 8)
    cp.run(TABLE, out=tmp_path / "whole", progress=False)
    stores = [Store(path) for path in both]
    assert rows(load_runs(stores)) == rows(load_runs([Store(tmp_path / "whole")]))


def test_who_may_run_beside_whom(tmp_path):
    store = Store(tmp_path)
    with store.lock(Shard(0, 3)), store.lock(Shard(2, 3)):
        assert (store.holder() or "").count(f"process {os.getpid()}") == 2
        with pytest.raises(ValueError, match=r"being run by shard 0/3: process \d+ on"), store.lock(Shard(0, 3)):
            pass
        with pytest.raises(ValueError, match=r"being run by shard [02]/3: process"), store.lock():
            pass
        with pytest.raises(ValueError, match=r"being run by shard 0/3"), store.lock(Shard(1, 2)):
            pass  # another cut: it would run the same blocks
        with store.lock(Shard(1, 3)):
            pass
    assert store.holder() is None
    with store.lock(), pytest.raises(ValueError, match=r"being run by process \d+ on"), store.lock(Shard(0, 3)):
        pass
    with store.lock(Shard(1, 2)):  # nobody is left
        pass


def test_where_directories_cannot_be_locked_lock_files_keep_others_out(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "_directory_held", lambda *_: contextlib.nullcontext())
    test_who_may_run_beside_whom(tmp_path)


def test_a_file_system_without_locks_is_told_as_such(tmp_path, capsys, monkeypatch):
    def none(file, kind):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "flock", none)
    assert cli.main(flags(tmp_path / "a", "0/1")) == 2
    err = capsys.readouterr().err
    assert "cannot lock files (No locks available)" in err
    assert "--no-lock" in err
    assert "being run" not in err
    assert cli.main([*flags(tmp_path / "a", "0/1"), "--no-lock"]) == 0
    assert Store(tmp_path / "a").finished
    assert Store(tmp_path / "a").holder() is None
