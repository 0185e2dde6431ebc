"""Changes in the modules of an import: they are detected, and a run of other code is refused."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import pytest

import cpdpo_jax as cp
from cpdpo_jax import cli
from cpdpo_jax.envs import registry
from cpdpo_jax.sweeps import compatibility, hashing, imports
from cpdpo_jax.sweeps.received import CodeDirectory
from cpdpo_jax.sweeps.store import Store
from tests.sweeps.user_code import LIBRARY, MINE, table

pytestmark = pytest.mark.usefixtures("standard_promotion")


FEW = ("package", "inside a function", "exec of text", "a computed name")


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.exhaustive] * (case not in FEW)) for case in LIBRARY]
)
def test_a_change_in_any_module_that_an_import_loads_is_seen(library, mine, tmp_path, case):
    """The old numbers are not taken for those of the changed code, whose numbers are others."""
    changed = library(case)
    (before,) = cp.run(table(mine), out=tmp_path / "a", progress=False)
    assert imports.read(str(mine)).digest == Store(tmp_path / "a").manifest["imports"][str(mine)]
    changed.write_text(changed.read_text().replace("1.0", "9.0"))  # of the same size in the same second
    with pytest.raises(ValueError, match=r"mine\.py, or a module that it imports, has changed"):
        cp.run(table(mine), out=tmp_path / "a", progress=False)
    (after,) = cp.run(table(mine), out=tmp_path / "b", progress=False)
    old, new = (each.result.data.strong_regret.sel(learner="mine").values for each in (before, after))
    assert (old != new).all()


def test_a_module_that_was_loaded_before_and_changed_since_is_loaded_again(library, mine, tmp_path):
    """As in a notebook; what it had registered by hand is forgotten."""
    changed = library("package")
    (tmp_path / "mylib" / "core.py").write_text("WEIGHT = 1.0\nimport cpdpo_jax as cp\n@cp.envs.register\n"
                                                "def twice():\n    return cp.envs.make('factored')\n")  # fmt: skip
    importlib.import_module("mylib.core")
    changed.write_text(changed.read_text().replace("1.0", "9.0"))
    (loaded,) = imports.load([str(mine)])
    assert imports.sys.modules["mylib.core"].WEIGHT == 9.0
    assert "twice" in imports.registered_names()
    assert loaded.digest == imports.read(str(mine)).digest
    imports.load([])
    registry.unregister("twice")


def test_two_imports_share_a_module_or_have_their_own(library, mine, tmp_path):
    """A shared one is loaded once; another of the same name is not taken for it."""
    library("package")
    (tmp_path / "mylib" / "core.py").write_text("WEIGHT = 1.0\nimport cpdpo_jax as cp\n@cp.envs.register\n"
                                                "def twice():\n    return cp.envs.make('factored')\n")  # fmt: skip
    (tmp_path / "second.py").write_text("from mylib.core import WEIGHT\n")
    imports.load([str(mine), str(tmp_path / "second.py")])
    assert "twice" in imports.registered_names()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "third.py").write_text("import mylib.core\nWEIGHT = mylib.core.WEIGHT\n")
    (tmp_path / "other" / "mylib").mkdir()
    (tmp_path / "other" / "mylib" / "core.py").write_text("WEIGHT = 5.0\n")
    (tmp_path / "other" / "mylib" / "__init__.py").write_text("")
    imports.load([str(mine), str(tmp_path / "other" / "third.py")])
    (third,) = [module for name, module in imports.sys.modules.items() if name.startswith("cpdpo_import_third")]
    assert third.WEIGHT == 5.0
    imports.sys.modules.pop(third.__name__)


def test_code_without_a_file_is_not_resumed(library, mine, tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "lib.zip", "w") as archive:
        archive.writestr("packed.py", "WEIGHT = 1.0\n")
    mine.write_text(
        MINE.replace("from neighbour", f"import sys\nsys.path.append({str(tmp_path / 'lib.zip')!r})\nfrom packed")
    )
    cp.run(table(mine), out=tmp_path / "a", progress=False)
    cp.run(table(mine), out=tmp_path / "a", progress=False)  # this process knows what it has loaded
    monkeypatch.setattr(hashing, "UNHASHABLE", b"another process")
    with pytest.raises(ValueError, match=r"mine\.py loads packed.py, which has no source file"):
        cp.run(table(mine), out=tmp_path / "a", progress=False)


def test_what_is_installed_is_not_hashed(tmp_path, monkeypatch):
    """A folder with installed packages: those are identified by their versions, other files are user code."""
    (tmp_path / "theirs.py").write_text("import mine_too\n")
    (tmp_path / "mine_too.py").write_text("import numpy, json, cpdpo_jax, theirs\n")
    (tmp_path / "start.py").write_text("import theirs, mine_too\n")
    info = tmp_path / "theirs-1.2.dist-info"
    info.mkdir()
    (info / "RECORD").write_text("theirs.py,sha256=0,1\n")
    start = {"start.py": tmp_path / "start.py"}
    assert sorted(hashing.user_code(start)) == ["mine_too.py", "start.py"]


def test_copies_of_files_are_removed(mine, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    sent = imports.read(str(mine))
    for name in sent.files:
        (tmp_path / name).unlink()
    imports.load_received([sent])
    imports.load_received([sent._replace(name=str(tmp_path / "elsewhere" / "mine.py"))])  # the same code: not run again
    assert len(list((tmp_path / "temporary").iterdir())) == 1
    imports.load_received([])
    assert list((tmp_path / "temporary").iterdir()) == []


KILLED = """
import time
from cpdpo_jax.sweeps.received import CodeDirectory
directory = CodeDirectory()
print(directory.path, flush=True)
time.sleep(600)
"""


def test_a_copy_of_a_killed_process_is_removed_by_the_next(tmp_path, monkeypatch):
    """That of a live one, and one just made, stay."""
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    processes = [
        subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    try:
        killed, live = (Path(process.stdout.readline().strip()) for process in processes if process.stdout)
        (tmp_path / "cpdpo-import-new").mkdir()
        for path in (killed, live):
            (path / "mine.py").write_text("")
            os.utime(path, (0, time.time() - 3600))
        processes[0].kill()
        processes[0].wait(60)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        own = CodeDirectory()
        assert sorted(tmp_path.iterdir()) == sorted([live, own.path, tmp_path / "cpdpo-import-new"])
        own.remove()
        assert not own.path.exists()
    finally:
        for process in processes:
            process.kill()
            process.communicate(timeout=300)


def test_somebody_elses_directory_is_refused_before_its_imports_are_executed(mine, tmp_path, capsys, monkeypatch):
    cp.run(table(mine), out=tmp_path / "a", progress=False)
    imports._LOADED.clear()
    mine.write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\n")
    monkeypatch.setattr(os, "getuid", lambda: os.stat(tmp_path).st_uid + 1)
    assert cli.main(["resume", str(tmp_path / "a")]) == 2
    error = capsys.readouterr().err
    assert "belongs to another user" in error
    assert f"would execute {mine}" in error
    assert "copy the directory" in error
    assert not (tmp_path / "executed").exists()


def test_another_version_is_refused_before_imports_are_executed(mine, tmp_path, monkeypatch):
    cp.run(table(mine), out=tmp_path / "a", progress=False)
    imports._LOADED.clear()
    mine.write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\n")
    other = compatibility.versions() | {"jax": "0.0.1"}
    monkeypatch.setattr(compatibility, "versions", lambda: other)
    with pytest.raises(ValueError, match="another version"):
        cp.run(table(mine), out=tmp_path / "a", progress=False)
    assert not (tmp_path / "executed").exists()
