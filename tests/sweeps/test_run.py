"""A sweep from Python: the same directory as the command's, taken up where it was left, and what is refused."""

from __future__ import annotations

import signal
import threading
import time

import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax import cli
from cpdpo_jax.simulation import blocks

pytestmark = pytest.mark.usefixtures("fast_compile")

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
    assert [one.result.data.identical(other.result.data) for one, other in zip(tables, again, strict=True)] == [
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
            time.sleep(0.3)  # until it has been heard
        return advance(*arguments)

    monkeypatch.setattr(blocks, "advance", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background a process ignores it
    try:
        with pytest.raises(KeyboardInterrupt, match="the same call goes on"):
            cp.run(TABLE, out=tmp_path / "a", progress=False)
    finally:
        signal.signal(signal.SIGINT, before)
    assert list((tmp_path / "a" / "checkpoints").iterdir())
    monkeypatch.undo()
    again = cp.run(TABLE, out=tmp_path / "a", progress=False)
    for one, other in zip(whole, again, strict=True):
        for name in one.result.data.data_vars:
            np.testing.assert_array_equal(one.result.data[name].values, other.result.data[name].values, str(name))


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
    with pytest.raises(ValueError, match="the configuration has the key 'seed', which is not known"):
        cp.run(TABLE | {"seed": 3}, out=tmp_path / "a")
    with pytest.raises(ValueError, match="every = 0 is not a positive number"):
        cp.run(TABLE, out=tmp_path / "a", every=0)
    assert not (tmp_path / "a").exists()
    cp.run(TABLE, out=tmp_path / "a", progress=False)
    for path in (tmp_path / "a" / "blocks").iterdir():
        path.unlink()
    with pytest.raises(ValueError, match="no finished block yet; go on with: cpdpo resume"):
        cp.load_run(tmp_path / "a")
