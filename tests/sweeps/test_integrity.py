"""Damage in a run directory: seen by every command, named with its remedy, set aside and done again; never believed."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import warnings

import jax
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax import cli
from cpdpo_jax.common import files
from cpdpo_jax.common.files import DamagedError
from cpdpo_jax.simulation.blocks import Snapshot
from cpdpo_jax.simulation.curves import BlockCurves
from cpdpo_jax.sweeps import integrity, provenance, snapshots, store
from cpdpo_jax.sweeps.load import load_runs
from cpdpo_jax.sweeps.run import build_config
from cpdpo_jax.sweeps.specification import expand
from cpdpo_jax.sweeps.store import Store
from tests.sweeps.test_run import TABLE
from tests.sweeps.test_store import contents


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of two blocks."""
    place = tmp_path_factory.mktemp("finished") / "run"
    cp.run(TABLE, out=place, progress=False)
    return place


@pytest.fixture
def place(finished, tmp_path):
    """The same, to be damaged."""
    return shutil.copytree(finished, tmp_path / "run")


def files_of(place):
    """All but the lock, which says who ran last."""
    found = [path for path in place.rglob("*") if path.is_file() and path.name != "lock"]
    return {str(path.relative_to(place)): path.read_bytes() for path in found}


def first_block(place):
    return min((place / "blocks").iterdir())


def begin_block(place) -> tuple[str, Snapshot]:
    """As if the first block had been stopped: its snapshot instead of its file."""
    path = first_block(place)
    path.unlink()
    curves = BlockCurves(*(np.zeros((1, 32)) for _ in BlockCurves._fields[:-1]), done=np.array(7))
    snapshot = Snapshot(7, np.ones(32), curves, [np.arange(32.0), np.array(3)])
    snapshots.save(Store(place), path.stem, snapshot)
    return path.stem, snapshot


def is_refused(capsys, path, *commands):
    """Each command ends with code 2 and one line that names the file."""
    for command in commands:
        assert cli.main(command) == 2
        err = capsys.readouterr().err
        assert str(path) in err
        assert err.count("\n") == 1
        assert "internal error" not in err


def test_every_flipped_bit_of_a_block_is_seen(place):
    """Also those in the checksum itself, and a file that is cut anywhere."""
    path, rng = first_block(place), np.random.default_rng(0)
    whole = path.read_bytes()
    for at in [0, len(whole) - 1, len(whole) - 70, *rng.integers(0, len(whole), 60)]:
        changed = bytearray(whole)
        changed[at] ^= 1 << rng.integers(8)
        for content in (bytes(changed), whole[:at]):
            path.write_bytes(content)
            ((found, what),) = integrity.find_damaged(Store(place), Store(place).blocks)
            assert found == path
            assert f"{path} is damaged" in what
            assert f"cpdpo resume {place}" in what
            with pytest.raises(DamagedError, match=path.name):
                load_runs([Store(place)])


def test_a_damaged_block_is_named_set_aside_and_run_again(place, finished, capsys):
    path = first_block(place)
    broken = bytes(path.read_bytes()[:2000])
    path.write_bytes(broken)
    before = files_of(place)
    is_refused(capsys, path, ["status", str(place)], ["report", str(place)])
    assert files_of(place) == before
    assert cli.main(["status", str(place), "--json"]) == 2
    status = json.loads(capsys.readouterr().out)
    assert (status["finished"], status["damaged"], status["state"]) == (1, [str(path)], "stopped")
    assert cli.main(["resume", str(place), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["ran"] == 1
    aside = place / "damaged" / path.name
    assert str(path) in err
    assert str(aside) in err
    assert aside.read_bytes() == broken
    assert contents(place) == contents(finished)
    path.write_bytes(broken[:10])  # a second time
    with pytest.warns(UserWarning, match=rf"{path.stem}-1\.nc"):
        cp.run(TABLE, out=place, progress=False)
    assert len(list(aside.parent.iterdir())) == 2
    assert contents(place) == contents(finished)


def test_a_block_in_anothers_place_is_seen(place):
    first, second = sorted((place / "blocks").iterdir())
    shutil.copy(first, second)
    with pytest.raises(DamagedError, match=rf"{second.name} is damaged: it is the file of another block"):
        cp.load_run(place)


@pytest.mark.parametrize("damage", ["empty", "flipped", "cut", "another's"])
def test_a_damaged_snapshot_is_named_and_its_block_run_again(place, finished, capsys, damage):
    key, snapshot = begin_block(place)
    path = Store(place).checkpoint_path(key)
    whole = path.read_bytes()
    if damage == "another's":
        snapshots.save(Store(place), "0123456789abcdef", snapshot)
        os.replace(Store(place).checkpoint_path("0123456789abcdef"), path)
    else:
        flipped = whole[:100] + bytes([whole[100] ^ 4]) + whole[101:]
        path.write_bytes({"empty": b"", "flipped": flipped, "cut": whole[:-300]}[damage])
    is_refused(capsys, path, ["status", str(place)])
    assert cli.main(["resume", str(place)]) == 0
    assert str(path) in capsys.readouterr().err
    assert (place / "damaged" / path.name).is_file()
    assert contents(place) == contents(finished)


def test_any_bit_of_a_snapshot_counts(place):
    key, snapshot = begin_block(place)
    path, rng = Store(place).checkpoint_path(key), np.random.default_rng(0)
    assert snapshots.load(Store(place), key).episode == snapshot.episode  # pyright: ignore[reportOptionalMemberAccess]
    whole = path.read_bytes()
    for at in rng.integers(0, len(whole), 60):
        changed = bytearray(whole)
        changed[at] ^= 1 << rng.integers(8)
        path.write_bytes(changed)
        with pytest.raises(DamagedError, match=key):
            snapshots.load(Store(place), key)


def changed_number(text: str) -> str:
    """The first digit of the second half is another one."""
    at = next(i for i in range(len(text) // 2, len(text)) if text[i].isdigit())
    return text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :]


DAMAGES = {
    "empty": lambda text: "",
    "no table": lambda text: "[1]",
    "an empty table": lambda text: "{}",
    "cut": lambda text: text[: len(text) // 2],
    "one digit": changed_number,
    "not text": lambda text: b"\xff\xfe\x00",
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["manifest.json", "blocks.json", "config.toml"])
def test_small_files_are_named_with_their_remedy(place, capsys, monkeypatch, name, damage):
    path = place / name
    content = DAMAGES[damage](path.read_text())
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    before = files_of(place)
    is_refused(capsys, path, ["status", str(place)], ["report", str(place)])
    if name != "blocks.json":
        is_refused(capsys, path, ["resume", str(place)])
    assert files_of(place) == before
    monkeypatch.setattr("cpdpo_jax.sweeps.runner.run_block", None)  # nothing is to be run
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cp.run(TABLE, out=place, progress=False, any_version=name == "manifest.json")  # the remedy
    assert cli.main(["status", str(place)]) == 0
    if name == "manifest.json":
        assert (place / "damaged" / name).is_file()


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_sessions_of_a_shard_are_named_with_their_remedy(tmp_path, capsys, damage):
    place = tmp_path / "run"
    cp.run(TABLE, out=place, progress=False, shard="0/1")
    path = place / "shards" / "0-of-1.json"
    content = DAMAGES[damage](path.read_text())
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    is_refused(capsys, path, ["status", str(place)], ["report", str(place)], ["resume", str(place), "--shard", "0/1"])
    path.unlink()  # the remedy
    assert cli.main(["resume", str(place), "--shard", "0/1"]) == 0
    assert cli.main(["status", str(place)]) == 0


def test_a_later_format_is_refused(place, capsys):
    manifest = Store(place).manifest | {"format": 3}
    Store(place).write_manifest(manifest)
    is_refused(capsys, place / "manifest.json", ["status", str(place)], ["resume", str(place)])
    assert cli.main(["report", str(place)]) == 2
    assert "has format 3, but cpdpo_jax reads format 2; update the package" in capsys.readouterr().err


def test_a_run_that_was_killed_while_it_began_is_taken_up(place, tmp_path, capsys):
    killed = tmp_path / "killed"
    killed.mkdir()
    shutil.copy(place / "config.toml", killed)
    assert cli.main(["resume", str(killed)]) == 2
    assert f"cpdpo run ... --out {killed}" in capsys.readouterr().err
    cp.run(TABLE, out=killed, progress=False)
    assert contents(killed) == contents(place)
    (killed / "manifest.json").unlink()  # and one that has lost it says so
    with pytest.raises(ValueError, match=r"manifest\.json is missing, so the version that ran the 2 blocks"):
        cp.run(TABLE, out=killed, progress=False)


def test_bits_of_two_machines_do_not_mix_in_a_block_unless_wanted(place, capsys, monkeypatch):
    key, _ = begin_block(place)
    here = store.rounding()
    assert here["cpu"]
    elsewhere = here | {"cpu": "another", "XLA_FLAGS": "--xla_cpu_enable_fast_math=true"}
    for module in (store, snapshots):
        monkeypatch.setattr(module, "rounding", lambda: elsewhere)
    before = files_of(place)
    is_refused(capsys, Store(place).checkpoint_path(key), ["resume", str(place)])
    assert files_of(place) == before
    assert integrity.set_aside(Store(place), Store(place).blocks, any_version=True) == []
    Store(place).checkpoint_path(key).unlink()
    assert cli.main(["resume", str(place)]) == 0  # other blocks may be run elsewhere: the manifest says so
    assert [session["rounding"]["cpu"] for session in Store(place).manifest["sessions"]] == [here["cpu"], "another"]
    capsys.readouterr()
    assert cli.main(["status", str(place)]) == 0
    assert "2 kinds of machine" in capsys.readouterr().out


def test_xla_flags_that_round_are_told_apart(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    assert store.rounding()["XLA_FLAGS"] == ""
    monkeypatch.setenv("XLA_FLAGS", "--xla_b=1  --xla_a=2")
    assert store.rounding()["XLA_FLAGS"] == "--xla_a=2 --xla_b=1"


def without_numba(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    provenance._numba.cache_clear()


OTHER = {
    "without numba": (without_numba, "kernels 'numba .*, llvmlite .*' then, 'pure JAX' now"),
    "another processor for numba": (
        lambda monkeypatch: monkeypatch.setenv("NUMBA_CPU_NAME", "generic"), "NUMBA_CPU_NAME '' then, 'generic' now",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OTHER)
def test_a_snapshot_of_other_kernels_is_not_resumed(place, monkeypatch, case):
    """The bits of its block would be of two."""
    begin_block(place)
    provenance._numba.cache_clear()
    change, message = OTHER[case]
    change(monkeypatch)
    with pytest.raises(ValueError, match=rf"written on another kind of machine \({message}\)"):
        cp.run(TABLE, out=place, progress=False)
    monkeypatch.undo()
    provenance._numba.cache_clear()
    assert snapshots.machine_difference(Store(place), begun_key(place)) == ""


@pytest.mark.parametrize("context", [jax.default_matmul_precision("highest"), cp.kernels.paper_forms()])
def test_a_snapshot_of_another_context_is_not_resumed(place, context):
    begin_block(place)
    with context, pytest.raises(ValueError, match="written on another kind of machine"):
        cp.run(TABLE, out=place, progress=False)


def begun_key(place):
    return next((place / "checkpoints").iterdir()).stem


def test_a_variable_that_was_set_then_and_is_not_now_counts(place, monkeypatch):
    monkeypatch.setattr(snapshots, "rounding", lambda: provenance.rounding() | {"a compiler's flag": "2"})
    begin_block(place)
    monkeypatch.undo()
    assert snapshots.machine_difference(Store(place), begun_key(place)) == "a compiler's flag '2' then, None now"


def test_which_snapshots_must_be_of_this_kind_of_machine(tmp_path):
    """Those of unfinished blocks, unless they are damaged or any version is wanted."""
    config = build_config({"learners": ["uniform"], "environments": ["factored"], "episodes": 50, "seeds": 2})
    blocks = expand(config)
    (key,) = blocks
    run = Store(tmp_path)
    run.begin(config, blocks)
    assert integrity.set_aside(run, blocks, any_version=False) == []  # no snapshot
    buffer = io.BytesIO()
    np.savez(buffer, key=np.array(key), episode=np.array(7), rounding=np.array(json.dumps({"cpu": "another"})))
    files.write(run.checkpoint_path(key), files.seal(buffer.getvalue()))
    with pytest.raises(ValueError, match=r"another kind of machine \(cpu 'another' then"):
        integrity.set_aside(run, blocks, any_version=False)
    assert integrity.set_aside(run, blocks, any_version=True) == []
    files.write(run.result_path(key), files.seal(key.encode()))
    assert integrity.set_aside(run, blocks, any_version=False) == []
    run.result_path(key).unlink()
    run.checkpoint_path(key).write_bytes(b"damaged")
    (message,) = integrity.set_aside(run, blocks, any_version=False)
    assert message.endswith(f"it was moved to {tmp_path / 'damaged' / f'{key}.npz'}, and is computed again.")
