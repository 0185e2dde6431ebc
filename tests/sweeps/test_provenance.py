"""What a run directory says of its origin: the hash of the numerical code, and the versions that began it."""

from __future__ import annotations

import hashlib
import os
import subprocess
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest

import cpdpo_jax as cp
from cpdpo_jax.common.machine import cpu_type
from cpdpo_jax.simulation import workers
from cpdpo_jax.sweeps import provenance, store
from cpdpo_jax.sweeps.run import build_config
from cpdpo_jax.sweeps.store import Store


def test_the_hash_of_the_code_sees_every_file_of_every_room(tmp_path, monkeypatch):
    """In folders of folders too: its content, its name, and that it is there."""
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path)
    paths = [
        tmp_path / folder / inner
        for folder in provenance.NUMERICAL_PACKAGES
        for inner in ("a.py", "cpu/b.py", "cpu/deep/c.py")
    ]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")
    seen = {provenance.versions()["code"]}
    for path in paths:
        path.write_text("x = 2\n")
        seen.add(provenance.versions()["code"])
    paths[-1].rename(paths[-1].with_name("d.py"))
    seen.add(provenance.versions()["code"])
    assert len(seen) == len(paths) + 2
    assert set(provenance.NUMERICAL_PACKAGES) == {"common", "kernels", "exact", "envs", "learners", "simulation"}


def test_the_hash_covers_the_real_tree():
    """Names, lengths and contents of all sources of the rooms that compute, found and hashed without the package."""
    package = Path(cp.__file__).parent
    found = [
        (f"{folder}/{name}", os.path.relpath(f"{folder}/{name}", package))
        for room in ("common", "kernels", "exact", "envs", "learners", "simulation")
        for folder, _, names in os.walk(package / room)
        for name in names
        if name.endswith(".py")
    ]
    assert "kernels/machines/numba/episode.py" in {name for _, name in found}
    total = hashlib.sha256()
    for path, name in sorted(found, key=lambda pair: pair[1]):
        content = Path(path).read_bytes()
        total.update(f"{name}\0{len(content)}\0".encode() + content)
    assert provenance.versions()["code"] == total.hexdigest()[:16]


def test_the_versions_that_began_a_run_are_kept(tmp_path, monkeypatch):
    """Each session has its own."""
    config = build_config({"learners": ["uniform"], "environments": ["factored"], "episodes": 10, "seeds": 1})
    blocks = {"0": {}}
    first = store.versions()
    Store(tmp_path).begin(config, blocks)
    monkeypatch.setattr(store, "versions", lambda: first | {"jax": "0.0.1"})
    Store(tmp_path).begin(config, blocks)
    manifest = Store(tmp_path).manifest
    assert manifest["versions"] == first
    assert [session["versions"]["jax"] for session in manifest["sessions"]] == [first["jax"], "0.0.1"]


def test_the_versions_are_those_of_the_package_and_of_what_computes():
    found = provenance.versions()
    assert found.pop("code") == provenance.versions()["code"]
    assert found == {name: metadata.version(name) for name in ("cpdpo_jax", "jax", "jaxlib", "numpy", "highspy")}


@pytest.mark.parametrize(
    "name", ["CPDPO_TARGET", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_OPT", "NUMBA_DISABLE_JIT"]
)
def test_variables_that_change_rounding_are_recorded(monkeypatch, name):
    monkeypatch.delenv(name, raising=False)
    assert provenance.rounding()[name] == ""
    monkeypatch.setenv(name, "gpu")
    assert provenance.rounding()[name] == "gpu"


def test_flags_and_devices_that_change_rounding_are_recorded(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/tmp/x --xla_force_host_platform_device_count=2 --xla_cpu_x=1")
    found = provenance.rounding()
    assert found["XLA_FLAGS"] == "--xla_cpu_x=1"
    assert found["cpu"] == cpu_type()
    assert found["devices"] == "cpu cpu"
    assert found["matmul_precision"] == ""
    monkeypatch.setattr(workers, "devices", lambda: [Device("gpu", "B"), Device("gpu", "A"), Device("gpu", "B")])
    assert provenance.rounding()["devices"] == "gpu A, gpu B"
    assert provenance.devices() == ["gpu: B", "gpu: A", "gpu: B", f"{os.cpu_count()} cores"]


class Device(NamedTuple):
    """A device of jax."""

    platform: str
    device_kind: str


def test_a_revision_is_that_of_the_checkout_of_the_package(tmp_path, monkeypatch):
    """A plus for changes of the package; none for a package inside another's checkout."""

    def git(*arguments):
        names = ["-c", "user.name=a", "-c", "user.email=a@b"]
        command = ["git", "-C", str(tmp_path), *names, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout.strip()

    package = tmp_path / "cpdpo_jax"
    package.mkdir()
    monkeypatch.setattr(provenance, "PACKAGE", package)
    assert provenance.git_revision() is None
    (package / "a.py").write_text("x = 1\n")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    (tmp_path / "notes.txt").write_text("not of the package")
    assert provenance.git_revision() == git("rev-parse", "HEAD")
    (package / "a.py").write_text("x = 2\n")
    assert provenance.git_revision() == git("rev-parse", "HEAD") + "+"
    monkeypatch.setattr(provenance, "PACKAGE", package / "deeper")
    (package / "deeper").mkdir()
    assert provenance.git_revision() is None
