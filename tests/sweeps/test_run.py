"""A sweep from Python: the same directory as the command's, taken up where it was left, and what is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax import cli
from cpdpo_jax.common import interrupts
from cpdpo_jax.simulation import blocks
from cpdpo_jax.sweeps import integrity
from cpdpo_jax.sweeps.store import Store

ENVIRONMENT = {"name": "random", "layers": 2, "states": 2, "actions": 2, "constraints": 1}
TABLE = {"learners": ["uniform"], "environments": [ENVIRONMENT], "episodes": [40, 60], "seeds": 3}


def test_a_table_gives_results_that_are_read_again(tmp_path):
    tables = cp.run(TABLE, out=tmp_path / "a", progress=False)
    assert [(environment.split(":")[0], episodes) for environment, episodes, _ in tables] == [
        ("random", 40),
        ("random", 60),
    ]
    sizes = {name: value for name, value in ENVIRONMENT.items() if name != "name"}
    same = cp.simulate("uniform", cp.envs.make("random", **sizes), episodes=60, seeds=3, progress=False)
    np.testing.assert_array_equal(tables[1].result.data.strong_regret, same.data.strong_regret)
    again = cp.load_run(tmp_path / "a")
    assert [first.result.data.identical(second.result.data) for first, second in zip(tables, again, strict=True)] == [
        True
    ] * 2


def test_a_file_and_the_command_use_the_same_directory(tmp_path, capsys, monkeypatch):
    file = tmp_path / "sweep.toml"
    file.write_text(
        'learners = ["uniform"]\nepisodes = [40, 60]\nseeds = 3\n[[environments]]\n'
        + "\n".join(f"{name} = {value!r}" for name, value in ENVIRONMENT.items())
    )
    assert cli.main(["run", str(file), "--out", str(tmp_path / "a"), "--json"]) == 0
    assert '"ran": 2' in capsys.readouterr().out
    monkeypatch.setattr("cpdpo_jax.sweeps.runner.run_block", None)  # nothing is to be run
    assert len(cp.run(file, out=tmp_path / "a", progress=False)) == 2
    assert len(cp.run(TABLE, out=tmp_path / "a", progress=False)) == 2


def test_ctrl_c_raises_and_the_same_call_goes_on(tmp_path, monkeypatch):
    whole = cp.run(TABLE, out=tmp_path / "whole", progress=False)
    monkeypatch.setattr(blocks, "CALL_SECONDS", 0.0)  # calls of one episode, so that a stop comes in the middle
    calls, advance = [], blocks.advance

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 20:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            deadline = time.monotonic() + 60
            while not (interrupts._ACTIVE and interrupts._ACTIVE.requested) and time.monotonic() < deadline:
                time.sleep(0.01)
        return advance(*arguments)

    monkeypatch.setattr(blocks, "advance", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background a process ignores it
    try:
        with pytest.raises(KeyboardInterrupt, match="the same call resumes"):
            cp.run(TABLE, out=tmp_path / "a", progress=False)
    finally:
        signal.signal(signal.SIGINT, before)
    assert list((tmp_path / "a" / "checkpoints").iterdir())
    monkeypatch.undo()
    again = cp.run(TABLE, out=tmp_path / "a", progress=False)
    for first, second in zip(whole, again, strict=True):
        for name in first.result.data.data_vars:
            np.testing.assert_array_equal(first.result.data[name].values, second.result.data[name].values, str(name))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_while_environments_are_built_ends_after_the_current_one(tmp_path, number):
    built = []

    def interrupted(layers: int):
        built.append(layers)
        if layers == 3:
            os.kill(os.getpid(), number)
        return cp.envs.make("random", layers=layers, states=2, actions=2, constraints=1)

    cp.envs.register(interrupted)
    before = signal.signal(number, signal.default_int_handler)
    try:
        grid = {"name": "interrupted", "grid": {"layers": [2, 3, 4, 5]}}
        with pytest.raises(KeyboardInterrupt):
            cp.run(TABLE | {"environments": [grid]}, out=tmp_path / "a", progress=False)
    finally:
        signal.signal(number, before)
        cp.envs.unregister("interrupted")
    assert built == [2, 3]
    assert not (tmp_path / "a").exists()


TWICE = """
import os, signal, sys, threading, time
import cpdpo_jax as cp
from cpdpo_jax import cli
from cpdpo_jax.common import interrupts
from cpdpo_jax.simulation import blocks
from cpdpo_jax.sweeps import integrity
from cpdpo_jax.sweeps.store import Store
signal.signal(signal.SIGINT, signal.default_int_handler)
advance, calls = blocks.advance, []

def interrupted(*arguments):
    calls.append(None)
    if len(calls) == 30:  # in the second block, in a call that does not end
        os.kill(os.getpid(), signal.SIGINT)
        while not (interrupts._ACTIVE and interrupts._ACTIVE.requested):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(300)
    return advance(*arguments)

blocks.advance, blocks.CALL_SECONDS = interrupted, 0.0
sys.argv[0] = "cpdpo"
sys.exit(cli.main())
"""


def test_a_second_ctrl_c_ends_the_command_at_once_and_loses_no_stored_block(tmp_path):
    """With exit code 130, no trace, and nothing damaged."""
    environment = "random:layers=2,states=2,actions=2,constraints=1,instances=2"
    flags = ["--learner", "uniform", "--env", environment, "--seeds", "3", "--out", str(tmp_path / "a")]
    command = [sys.executable, "-c", TWICE, "run", "--episodes", "40", *flags, "--checkpoint-every", "0.000001"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=os.environ | {"NPROC": "1"})
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert "ignored" not in done.stderr
    store = Store(tmp_path / "a")
    stored = sum(map(store.is_done, store.blocks)) + len(list(store.path.glob("checkpoints/*.npz")))
    assert stored
    assert integrity.verify_run(store) == []


def test_directories_are_put_together(tmp_path):
    few, more = tmp_path / "few", tmp_path / "more"
    cp.run(TABLE, out=few, progress=False)
    cp.run(TABLE | {"seeds": [3, 4]}, out=more, progress=False)
    assert cp.load_run(few, more)[0].result.data.seed.values.tolist() == [0, 1, 2, 3, 4]


def test_what_is_refused(tmp_path):
    with pytest.raises(ValueError, match="does not exist; give the --out"):
        cp.load_run(tmp_path / "none")
    with pytest.raises(ValueError, match=r"no\.toml': there is no such file; give a table"):
        cp.run(tmp_path / "no.toml", out=tmp_path / "a")
    with pytest.raises(ValueError, match="config is a list; give a table"):
        cp.run([TABLE], out=tmp_path / "a")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="the configuration has the unknown key 'seed'"):
        cp.run(TABLE | {"seed": 3}, out=tmp_path / "a")
    with pytest.raises(ValueError, match="every = 0 is not a positive number"):
        cp.run(TABLE, out=tmp_path / "a", every=0)
    assert not (tmp_path / "a").exists()
    cp.run(TABLE, out=tmp_path / "a", progress=False)
    for path in (tmp_path / "a" / "blocks").iterdir():
        path.unlink()
    with pytest.raises(ValueError, match="no finished block yet; resume with: cpdpo resume"):
        cp.load_run(tmp_path / "a")


def test_a_watched_sweep_may_hold_learners_without_an_analysis_and_of_different_analyses(tmp_path):
    table = {"learners": ["uniform", "cpdpo", "cpd_oppo"], "environments": ["hard"], "episodes": 40, "seeds": 2,
             "monitor": True}  # fmt: skip
    ((_, _, result),) = cp.run(table, out=tmp_path, progress=False)
    failures = result.data.failures.isel(episode=-1, instance=0, hparams=0)
    own = {
        str(learner): set(failures.sel(learner=learner).dropna("event").event.values)
        for learner in failures.learner.values
    }
    direct = cp.simulate(["uniform", "cpdpo", "cpd_oppo"], "hard", episodes=40, seeds=2, monitor=True, progress=False)
    expected = direct.data.failures.isel(episode=-1, instance=0, hparams=0)
    assert own == {
        str(learner): set(expected.sel(learner=learner).dropna("event").event.values)
        for learner in expected.learner.values
    }
    assert own["uniform"] == set()
    assert len(own["cpd_oppo"]) > 2 < len(own["cpdpo"])
