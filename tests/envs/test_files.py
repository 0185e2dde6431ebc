"""One .npz without pickle: exact, atomic, usable as a name, clear about wrong files."""

import os
import pickle

import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.envs import files


def equal(a, b) -> None:
    for field in (*files._ARRAYS, "noise", "names"):
        np.testing.assert_array_equal(getattr(a, field), getattr(b, field))
        assert type(getattr(a, field)) is type(getattr(b, field))
    for x, y in zip(a.units, b.units, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("name", ["inventory", "media_streaming", "grid_three_constraints", "small_rho"])
def test_comes_back_exactly_and_by_name(name, tmp_path):
    cmdp = cp.envs.make(name)
    path = cp.save_cmdp(tmp_path / "my.npz", cmdp)
    equal(cp.load_cmdp(path), cmdp)
    equal(cp.envs.make(path), cmdp)
    equal(cp.envs.make(str(path)), cmdp)
    assert os.listdir(tmp_path) == ["my.npz"]
    np.testing.assert_allclose(cp.solve(cp.envs.make(path)).value, cp.solve(cmdp).value)


def test_what_failed_to_be_written_leaves_the_old_file(tmp_path, monkeypatch):
    path = cp.save_cmdp(tmp_path / "my.npz", cp.envs.make("factored"))

    def fail(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(OSError, match="disk full"):
        cp.save_cmdp(path, cp.envs.make("difficult"))
    assert os.listdir(tmp_path) == ["my.npz"]
    assert cp.load_cmdp(path).names == ("factored",)


def test_wrong_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        cp.envs.make(tmp_path / "none.npz")
    text = tmp_path / "text.npz"
    text.write_text("not a zip")
    with pytest.raises(ValueError, match=r"not a readable \.npz"):
        cp.load_cmdp(text)
    other = tmp_path / "other.npz"
    np.savez(other, weights=np.ones(3))
    with pytest.raises(ValueError, match=r"not a CMDP of cpdpo_jax \(it holds weights"):
        cp.load_cmdp(other)
    evil = tmp_path / "evil.npz"
    np.savez(evil, format=np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="without pickles"):
        cp.load_cmdp(evil)
    evil.write_bytes(pickle.dumps({"format": files.FORMAT}))
    with pytest.raises(ValueError, match="without pickles"):
        cp.load_cmdp(evil)


def changed(tmp_path, **changes):
    """The path of a saved CMDP with entries replaced, or left out where None."""
    path = cp.save_cmdp(tmp_path / "my.npz", cp.envs.make("factored"))
    with np.load(path) as file:
        content = {key: file[key] for key in file.files} | changes
    np.savez(path, **{key: value for key, value in content.items() if value is not None})
    return path


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"version": np.array(99)}, "format version 99, this cpdpo_jax reads up to 1"),
        ({"reward": None}, "lacks reward"),
        ({"threshold": np.array([-1.0])}, r"holds no valid CMDP: threshold\[0\] is -1"),
        ({"reward": np.ones((2, 2, 2))}, "holds no valid CMDP"),
        ({"noise": np.array("loud")}, "noise is 'loud'"),
    ],
)
def test_damaged_files_are_named(tmp_path, changes, match):
    with pytest.raises(ValueError, match=match):
        cp.load_cmdp(changed(tmp_path, **changes))


def test_bad_paths_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"ends in \.npz"):
        cp.save_cmdp(tmp_path / "my.txt", cp.envs.make("factored"))
    with pytest.raises(ValueError, match="there is no directory"):
        cp.save_cmdp(tmp_path / "nowhere" / "my.npz", cp.envs.make("factored"))
