"""`cpdpo status` of directories in every state; nothing is simulated, the files of the blocks are written by hand."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

from cpdpo_jax import cli
from cpdpo_jax.common import files
from cpdpo_jax.sweeps.run import build_config
from cpdpo_jax.sweeps.specification import expand
from cpdpo_jax.sweeps.store import Store

CONFIG = build_config({"learners": ["uniform"], "environments": ["factored"], "episodes": 50, "seeds": 40})
BLOCKS = expand(CONFIG)
LARGE, SMALL = sorted(BLOCKS, key=lambda key: -len(BLOCKS[key]["seeds"]))  # 32 and 8 seeds


def begin(place: Path, finished: str = "", begun: str = "", episode: int = 0) -> Store:
    """A directory with a finished block, and a block with a snapshot at an episode."""
    place.mkdir()
    store = Store(place)
    store.begin(CONFIG, BLOCKS)
    if finished:
        files.write(store.result_path(finished), files.seal(finished.encode()))
    if begun:
        buffer = io.BytesIO()
        np.savez(buffer, key=np.array(begun), episode=np.array(episode))
        files.write(store.checkpoint_path(begun), files.seal(buffer.getvalue()))
    return store


def status(capsys, *stores: Store, code: int = 0) -> dict:
    """The JSON of these directories together."""
    assert cli.main(["status", *(str(store.path) for store in stores), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_progress_is_in_episodes_of_seeds(tmp_path, capsys):
    store = begin(tmp_path / "a", LARGE, SMALL, 20)
    assert status(capsys, store) == {
        "directory": str(store.path), "state": "stopped", "running": None, "blocks": 2, "finished": 1,
        "begun": {SMALL: 20}, "fraction": (32 * 50 + 8 * 20) / (40 * 50), "damaged": [],
    }  # fmt: skip
    assert cli.main(["status", str(store.path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{store.path}: 1 of 2 blocks finished, 1 started; 88.0% of episodes",
        "  uniform on factored, tuned, seeds 32-39: 20 of 50 episodes",
        f"not running; resume with: cpdpo resume {store.path}",
    ]
    with store.lock():
        assert status(capsys, store)["state"] == "running"
        assert cli.main(["status", str(store.path)]) == 0
        assert capsys.readouterr().out.splitlines()[-1].startswith("running: process ")


def test_directories_are_added_up(tmp_path, capsys):
    """A block is finished if it is in one of them, and has the episodes of the latest snapshot."""
    first, second = begin(tmp_path / "a", "", SMALL, 20), begin(tmp_path / "b", LARGE, SMALL, 30)
    for stores in ((first, second), (second, first)):
        together = status(capsys, *stores)
        assert (together["blocks"], together["finished"], together["begun"]) == (2, 1, {SMALL: 30})
    third = begin(tmp_path / "c", SMALL)
    assert status(capsys, first, third)["state"] == "stopped"
    together = status(capsys, first, second, third)
    assert (together["state"], together["fraction"], together["begun"]) == ("finished", 1, {})
    assert cli.main(["status", str(second.path), str(third.path)]) == 0
    assert capsys.readouterr().out == f"{second.path} {third.path}: 2 of 2 blocks finished, 0 started; 100.0% of " \
        "episodes\n"  # fmt: skip


@pytest.mark.parametrize("kind", ["result", "snapshot"])
def test_a_damaged_file_does_not_count(tmp_path, capsys, kind):
    store, other = begin(tmp_path / "a", LARGE, SMALL, 20), begin(tmp_path / "b")
    path = store.result_path(LARGE) if kind == "result" else store.checkpoint_path(SMALL)
    path.write_bytes(path.read_bytes()[:-3])
    found = status(capsys, store, other, code=2)
    assert found["damaged"] == [str(path)]
    assert (found["finished"], found["begun"]) == ((0, {SMALL: 20}) if kind == "result" else (1, {}))
    assert cli.main(["status", str(store.path)]) == 2
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == (3 if kind == "result" else 2)
    assert err.startswith(f"cpdpo: {path} is damaged: ")


def test_kinds_of_machine_are_counted(tmp_path, capsys):
    store = begin(tmp_path / "a", LARGE)
    manifest = store.manifest
    manifest["sessions"] += [manifest["sessions"][0] | {"rounding": {"cpu": name}} for name in ("x", "y", "x")]
    store.write_manifest(manifest)
    assert cli.main(["status", str(store.path)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"{store.path} was run on 3 kinds of machine, which may round differently"
    manifest["sessions"] = manifest["sessions"][:1] * 2
    store.write_manifest(manifest)
    assert cli.main(["status", str(store.path)]) == 0
    assert "kinds of machine" not in capsys.readouterr().out
