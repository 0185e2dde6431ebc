"""Run directories: nothing is run twice, nothing is lost, nothing is left half-written, and the bits are the same."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import cpdpo_jax as cp
from cpdpo_jax import cli
from cpdpo_jax.common import files
from cpdpo_jax.simulation.blocks import run_block
from cpdpo_jax.simulation.lanes import LaneIndex
from cpdpo_jax.simulation.plan import select_instance
from cpdpo_jax.sweeps import compatibility
from cpdpo_jax.sweeps.load import load_runs
from cpdpo_jax.sweeps.store import Store
from tests.support import planned

SMALL = "random:layers=2,states=2,actions=2,constraints=1"


def run(out, *more, learner=("uniform",), episodes="60", seeds="3", env=(SMALL,)):
    flags = ["--learner", *learner, "--env", *env, "--episodes", episodes, "--seeds", seeds, "--out", str(out)]
    return cli.main(["run", *flags, *more])


def data_of(path: Path) -> dict[str, bytes]:
    """Every variable's bytes."""
    with xr.open_dataset(path, engine="h5netcdf") as data:
        return {str(name): np.asarray(data[name].values).astype(data[name].dtype.str).tobytes()
                if data[name].dtype != object else str(data[name].values.tolist()).encode()
                for name in data.variables}  # fmt: skip


def contents(directory: Path) -> dict[str, dict[str, bytes]]:
    return {path.name: data_of(path) for path in sorted((directory / "blocks").glob("*.nc"))}


def test_a_stored_run_is_what_simulate_returns(tmp_path, capsys):
    assert run(tmp_path / "a", learner=("podb", "uniform"), seeds="40") == 0
    (table,) = load_runs([Store(tmp_path / "a")])
    cmdp = cp.envs.make("random", layers=2, states=2, actions=2, constraints=1)
    same = cp.simulate(["podb", "uniform"], cmdp, episodes=60, seeds=40, block=32, progress=False)
    for name in same.data.data_vars:
        np.testing.assert_array_equal(table.result.data[name].values, same.data[name].values, err_msg=str(name))
    assert "podb" in capsys.readouterr().out
    assert table.result.summary() == same.summary()


def test_instances_of_a_batch_keep_their_luck(tmp_path):
    assert run(tmp_path / "a", learner=("podb",), env=(f"{SMALL},instances=3",)) == 0
    (table,) = load_runs([Store(tmp_path / "a")])
    cmdp = cp.envs.make("random", layers=2, states=2, actions=2, constraints=1, instances=3)
    same = cp.simulate("podb", cmdp, episodes=60, seeds=3, block=32, progress=False)
    np.testing.assert_allclose(table.result.data.strong_regret, same.data.strong_regret, rtol=1e-5, atol=1e-5)
    assert table.result.data.instance_name.values.tolist() == list(cmdp.names)


def test_only_new_blocks_run_and_other_configurations_are_refused(tmp_path, capsys):
    out = tmp_path / "a"
    assert run(out, "--json") == 0
    assert json.loads(capsys.readouterr().out)["ran"] == 1
    assert run(out, "--json", env=(SMALL, f"{SMALL},key=1")) == 0
    assert json.loads(capsys.readouterr().out)["ran"] == 1
    assert cli.main(["resume", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ran"] == 0
    before = contents(out), (out / "config.toml").read_text()
    assert run(out, "--key", "5") == 2
    err = capsys.readouterr().err
    assert "-key = 0" in err
    assert "+key = 5" in err
    assert (contents(out), (out / "config.toml").read_text()) == before
    assert cli.main(["status", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "finished"


def test_another_version_is_refused_unless_wanted(tmp_path, capsys, monkeypatch):
    assert run(tmp_path / "a") == 0
    other = compatibility.versions() | {"jax": "0.0.1"}
    monkeypatch.setattr(compatibility, "versions", lambda: other)
    assert cli.main(["resume", str(tmp_path / "a")]) == 2
    assert "now" in (err := capsys.readouterr().err)
    assert "0.0.1" in err
    assert cli.main(["resume", str(tmp_path / "a"), "--any-version"]) == 0


def test_two_processes_do_not_share_a_directory(tmp_path, capsys):
    assert run(tmp_path / "a") == 0
    capsys.readouterr()
    with Store(tmp_path / "a").lock():
        assert cli.main(["resume", str(tmp_path / "a")]) == 2
        assert f"is being run by process {os.getpid()}" in capsys.readouterr().err
        assert cli.main(["status", str(tmp_path / "a"), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["state"] == "running"


def test_a_deleted_lock_file_lets_no_one_in(tmp_path, capsys):
    assert run(tmp_path / "a") == 0
    with Store(tmp_path / "a").lock():
        (tmp_path / "a" / "lock").unlink()
        capsys.readouterr()
        assert cli.main(["resume", str(tmp_path / "a")]) == 2
        assert "is being run by another process, whose lock file was deleted" in capsys.readouterr().err
    assert cli.main(["resume", str(tmp_path / "a")]) == 0


def test_a_full_disk_is_told_and_loses_nothing(tmp_path, capsys, monkeypatch):
    out = tmp_path / "a"
    assert run(out) == 0
    before = contents(out)

    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    assert run(out, env=(SMALL, f"{SMALL},key=1")) == 1
    err = capsys.readouterr().err
    assert "the disk is full" in err
    assert "cpdpo resume" in err
    assert contents(out) == before
    assert not list(out.rglob(f"*{files.SUFFIX}"))
    monkeypatch.undo()
    assert run(out, env=(SMALL, f"{SMALL},key=1")) == 0
    assert len(contents(out)) == 2


def test_a_disk_that_is_full_from_the_start_is_told(tmp_path, capsys, monkeypatch):
    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    assert run(tmp_path / "a") == 1
    assert f"cpdpo: {tmp_path / 'a'}: the disk is full" in capsys.readouterr().err
    monkeypatch.undo()
    assert run(tmp_path / "a") == 0


@pytest.mark.parametrize("options", [{}, {"rho": "estimate:100", "horizon": "doubling"}])
def test_a_block_goes_on_from_any_snapshot_bit_for_bit(options, monkeypatch):
    monkeypatch.setattr("cpdpo_jax.simulation.blocks.CALL_SECONDS", 1e-3)
    cmdp = cp.envs.make("random", layers=2, states=2, actions=2, constraints=1, instances=2)
    work = select_instance(planned("cpdpo", cmdp, episodes=1300, seeds=32, **options).learners[0], 1, 0)
    lane = LaneIndex(np.zeros(32, int), np.zeros(32, int), np.arange(32), np.ones(32, bool))
    snapshots = []
    whole = run_block(work, lane, save=lambda snapshot: snapshots.append(_copy(snapshot)), every=0)
    assert len(snapshots) > 20
    for snapshot in snapshots[:: len(snapshots) // 6] + snapshots[-1:]:
        again = run_block(work, lane, start=_copy(snapshot))
        for name, leaf in whole._asdict().items():
            assert leaf.tobytes() == getattr(again, name).tobytes(), (name, snapshot.episode)


def _copy(snapshot):
    curves = type(snapshot.curves)(*(np.array(x) for x in snapshot.curves))
    return snapshot._replace(curves=curves, state=[np.array(leaf) for leaf in snapshot.state])


@pytest.mark.optimised
@pytest.mark.slow
def test_kill_9_and_resume_give_the_same_bytes(tmp_path):
    """Killed at two moments of a run of a few seconds, and once stopped by SIGTERM, then resumed to the end."""
    arguments = ["--learner", "uniform", "--env", SMALL, "--episodes", "400000", "--seeds", "40"]
    flags = ["--checkpoint-every", "0.1"]
    command = [sys.executable, "-m", "cpdpo_jax.cli"]
    whole, out = tmp_path / "whole", tmp_path / "killed"
    subprocess.run(
        [*command, "run", *arguments, "--out", str(whole), *flags], check=True, capture_output=True, timeout=600
    )
    signals = [signal.SIGKILL, signal.SIGTERM, signal.SIGKILL]
    codes = []
    for i, number in enumerate(signals):
        go = ["resume", str(out)] if (out / "manifest.json").exists() else ["run", *arguments, "--out", str(out)]
        process = subprocess.Popen([*command, *go, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seen = _work(out)
        deadline = time.monotonic() + 300
        while process.poll() is None and _work(out) == seen and time.monotonic() < deadline:
            time.sleep(0.01)  # until it has stored something new
        time.sleep(0.06 * i)
        process.send_signal(number)
        codes.append(process.wait(timeout=300))
        contents(out)  # every finished file can be read
    assert -signal.SIGKILL in codes  # else it was never killed at work
    assert codes[1] in (130, 0)
    subprocess.run([*command, "resume", str(out), *flags], check=True, capture_output=True, timeout=600)
    assert contents(out) == contents(whole)
    assert not list(out.rglob(f"*{files.SUFFIX}"))
    assert not list(out.rglob("*.npz"))


def _work(out: Path) -> dict[str, int]:
    """When each stored piece was written."""
    found = {}
    for path in (*out.glob("blocks/*.nc"), *out.glob("checkpoints/*.npz")):
        try:
            found[path.name] = path.stat().st_mtime_ns
        except FileNotFoundError:  # finished in between
            continue
    return found
