"""Which files are a user's code, and what their hash depends on."""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path

import numpy as np
import pytest

from cpdpo_jax.sweeps import hashing


def write(folder: Path, *names: str, text: str = "") -> None:
    """Files in a folder."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_a_digest_depends_on_names_contents_and_their_boundaries():
    files = [{"a": b"bc"}, {"ab": b"c"}, {"a": b"b", "c": b""}, {"a": b"b"}, {"a": b"", "b": b""}, {}, {"a": b"cb"}]
    assert len({hashing.digest(each) for each in files}) == len(files)
    assert hashing.digest({"a": b"1", "b": b"2"}) == hashing.digest({"b": b"2", "a": b"1"})
    assert len(hashing.digest({})) == 16


IMPORTS = {
    "import one, two.inner as t": {"one", "two"},
    "from one.inner import name": {"one"},
    "def f():\n    import one": {"one"},
    "from . import name": {"."},
    "from .one import name": {"."},
    "from ...one import name": {"..."},
    "import importlib\nimportlib.import_module('one.inner')": {"importlib", "one"},
    "__import__('one')": {"one"},
    "import_module(name)": set(),
    "import_module()": set(),
    "other('one')": set(),
    "import_module('one', 'two')": {"one"},
    "x = (": set(),
}


@pytest.mark.parametrize("text", IMPORTS)
def test_imports_are_found_wherever_they_are(text):
    assert hashing.imported_names(text.encode()) == IMPORTS[text]


def test_a_package_contributes_all_its_modules(tmp_path, monkeypatch):
    """Extension modules and linked folders too, of all folders of a namespace package, the first of two files."""
    first, second = tmp_path / "a", tmp_path / "b"
    write(first, "lib/one.py", "lib/inner/two.py", "lib/fast.abi3.so", "lib/notes.txt", "lib/not-a-module/x.py")
    write(second, "lib/three.py", "lib/one.py", "elsewhere/four.py", text="# second")
    (first / "lib" / "linked").symlink_to(second / "elsewhere", target_is_directory=True)
    (first / "lib" / "inner" / "ring").symlink_to(first / "lib", target_is_directory=True)
    for folder in (second, first):
        monkeypatch.syspath_prepend(str(folder))
    found = hashing.module_files("lib", {})
    assert sorted(found) == [
        "lib/fast.abi3.so", "lib/inner/two.py", "lib/linked/four.py", "lib/one.py", "lib/three.py"
    ]  # fmt: skip
    assert found["lib/one.py"] == first / "lib" / "one.py"
    assert hashing.module_files("nowhere", {}) == hashing.module_files("sys", {}) == {}
    assert hashing.module_files("cpdpo_jax", {}) == {}
    write(tmp_path / "c", "own.py")
    assert hashing.module_files("own", {"start.py": tmp_path / "c" / "start.py"}) == {
        "own.py": tmp_path / "c" / "own.py"
    }


def test_code_is_followed_through_modules_and_their_packages(tmp_path, monkeypatch):
    """A file outside a package with a relative import has all modules of that folder; two levels up, of the parent."""
    monkeypatch.syspath_prepend(str(tmp_path))
    write(tmp_path, "start.py", text="import first")
    write(tmp_path, "first.py", text="import second.inner")
    write(tmp_path, "second/__init__.py", "second/inner.py", "second/other.py", "unused.py")
    found = hashing.user_code({"start.py": tmp_path / "start.py"})
    assert sorted(found) == ["first.py", "second/__init__.py", "second/inner.py", "second/other.py", "start.py"]
    assert found["first.py"] == b"import second.inner"
    write(tmp_path, "lone/alone.py", text="from . import beside")
    write(tmp_path, "lone/beside.py")
    assert sorted(hashing.user_code({"alone.py": tmp_path / "lone" / "alone.py"})) == [
        "alone.py", "lone/alone.py", "lone/beside.py"
    ]  # fmt: skip
    write(tmp_path, "deep/er/alone.py", text="from .. import beside")
    write(tmp_path, "deep/beside.py")
    assert "deep/beside.py" in hashing.user_code({"alone.py": tmp_path / "deep" / "er" / "alone.py"})
    missing = hashing.user_code({"gone.py": tmp_path / "gone.py"})
    assert missing == {"gone.py": hashing.UNHASHABLE}


def test_what_belongs_to_python_or_a_distribution_is_installed(tmp_path):
    assert hashing.is_installed(Path(json.__file__))
    assert hashing.is_installed(Path(np.__file__))
    assert hashing.is_installed(Path(hashing.__file__))
    assert hashing.is_installed(Path("/usr/lib/python3/dist-packages/one/inner.py"))
    assert not hashing.is_installed(tmp_path / "mine.py")
    assert not hashing.is_installed(Path(sysconfig.get_path("purelib"), "mine_without_a_record.py"))
    site = tmp_path / "site"
    write(site, "theirs-1.dist-info/RECORD", text="theirs/__init__.py,sha256=0,1\nsingle.py,,\n")
    for name, installed in {"theirs/inner.py": True, "single.py": True, "other.py": False}.items():
        assert hashing.is_installed(site / name) == installed
