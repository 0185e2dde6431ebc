"""One .npz without pickle: exact, atomic, usable as a name, clear about wrong files."""

import io
import os
import pickle
import zipfile

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
        ({"version": np.array(99)}, "format version 99, but this cpdpo_jax reads up to 1"),
        ({"reward": None}, "lacks reward"),
        ({"threshold": np.array([-1.0])}, r"does not contain a valid CMDP: threshold\[0\] is -1"),
        ({"reward": np.ones((2, 2, 2))}, "does not contain a valid CMDP"),
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


def test_every_damaged_file_is_refused_or_the_same(tmp_path):
    """A changed byte is seen by a zip's own checks, unless it changes no value; a cut file is always refused."""
    path, rng = cp.save_cmdp(tmp_path / "my.npz", cp.envs.make("factored")), np.random.default_rng(0)
    whole, before = path.read_bytes(), cp.load_cmdp(path)
    for at in rng.integers(0, len(whole), 150):
        path.write_bytes(whole[:at])
        with pytest.raises(ValueError, match=r"my\.npz"):
            cp.load_cmdp(path)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << rng.integers(8)]) + whole[at + 1 :])
        try:
            equal(cp.load_cmdp(path), before)
        except ValueError as error:
            assert "my.npz" in str(error)  # noqa: PT017


@pytest.mark.parametrize("shape", ["(10**7, 10**7)", "(1, 1)", "(-1,)"])
def test_forged_sizes_are_not_believed(tmp_path, shape):
    body = io.BytesIO()
    np.save(body, np.arange(1000.0))
    forged = body.getvalue().replace(b"(1000,)", shape.encode()[:7].ljust(7)) if len(shape) <= 7 else None
    if forged is None:
        header = str({"descr": "<f8", "fortran_order": False, "shape": eval(shape)}).encode().ljust(117) + b"\n"
        forged = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(80)
    with zipfile.ZipFile(tmp_path / "my.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("reward.npy", forged)
    with pytest.raises(ValueError, match=r"my\.npz is (not a readable|an \.npz file but not a CMDP)"):
        cp.load_cmdp(tmp_path / "my.npz")


def test_broken_compression_is_named(tmp_path):
    path = cp.save_cmdp(tmp_path / "my.npz", cp.envs.make("factored"))
    with zipfile.ZipFile(path) as archive:
        start = max(member.header_offset for member in archive.infolist()) + 60
    content = bytearray(path.read_bytes())
    content[start : start + 20] = bytes(20)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"my\.npz"):
        cp.load_cmdp(path)
