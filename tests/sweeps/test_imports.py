"""A user's own learners and environments: from a file or a module, known by a hash, with runs stored like ours."""

from __future__ import annotations

import json
from importlib import metadata

import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax import cli
from cpdpo_jax.common import plugins
from cpdpo_jax.envs import registry
from cpdpo_jax.learners import base
from cpdpo_jax.sweeps import hashing, imports
from cpdpo_jax.sweeps.run import build_config
from cpdpo_jax.sweeps.specification import expand
from cpdpo_jax.sweeps.store import Store
from tests.sweeps.user_code import MINE, table

pytestmark = pytest.mark.usefixtures("standard_promotion")


def test_a_file_runs_from_the_command_line_and_from_python(mine, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = ["--learner", "mine", "uniform", "--env", "corridor", "--episodes", "40", "--seeds", "3"]
    assert cli.main(["run", *flags, "--import", "mine.py", "--out", "a", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ran"] == 2
    (stored,) = cp.run(table(mine), out=tmp_path / "a", progress=False)  # the same blocks: nothing is run
    same = cp.simulate(["mine", "uniform"], "corridor", episodes=40, seeds=3, block=32, progress=False)
    np.testing.assert_array_equal(stored.result.data.strong_regret, same.data.strong_regret)
    assert cli.main(["resume", "a", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ran"] == 0
    digest = imports.read(str(mine)).digest
    assert Store(tmp_path / "a").manifest["imports"] == {str(mine): digest}
    assert all(block["code"] == [digest] for block in Store(tmp_path / "a").blocks.values())
    assert cli.main(["solve", "corridor", "--import", "mine.py", "--json"]) == 0


def test_list_shows_them(mine, capsys):
    assert cli.main(["list", "--import", str(mine)]) == 0
    out = capsys.readouterr().out
    assert "Plays the first actions more often." in out
    assert "A small one of my own." in out
    assert cli.main(["list", "corridor", "--import", str(mine)]) == 0
    assert "layers = 3" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["mine.py", "neighbour.py"])
def test_a_change_is_another_block_and_another_learner(mine, tmp_path, name):
    (before,) = cp.run(table(mine), out=tmp_path / "a", progress=False)
    path = tmp_path / name
    path.write_text(path.read_text().replace("1.0", "9.0"))
    with pytest.raises(
        ValueError,
        match=r"mine\.py, or a .* has changed since .*a was started \(hash .* then, .* now\)",
    ):
        cp.run(table(mine), out=tmp_path / "a", progress=False)
    (after,) = cp.run(table(mine), out=tmp_path / "b", progress=False)
    old, new = before.result.data.strong_regret, after.result.data.strong_regret
    assert (old.sel(learner="mine").values != new.sel(learner="mine").values).all()
    np.testing.assert_array_equal(old.sel(learner="uniform"), new.sel(learner="uniform"))
    assert not set(Store(tmp_path / "a").blocks) & set(Store(tmp_path / "b").blocks)


def test_without_imports_a_block_is_what_it_was():
    blocks = expand(build_config({"learners": ["uniform"], "environments": ["factored"], "episodes": 40, "seeds": 3}))
    assert all("code" not in block for block in blocks.values())


def test_a_module_is_known_by_its_source(mine, tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("from package.learner import *\n")
    (tmp_path / "package" / "learner.py").write_text(MINE)
    first = imports.read("package")
    assert len(expand(build_config(table("package")))) == 2
    (tmp_path / "package" / "learner.py").write_text(MINE + "\n")
    assert imports.read("package").digest != first.digest
    assert [code.digest for code in imports.load(["package"])] == [imports.read("package").digest]
    for name in [name for name in imports.sys.modules if name.startswith("package")]:
        imports.sys.modules.pop(name)


def test_all_modules_of_a_package_of_relative_imports_are_hashed(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "relative" / "deep" / "er").mkdir(parents=True)
    (tmp_path / "relative" / "__init__.py").write_text("from .deep.er.inner import WEIGHT\n")
    (tmp_path / "relative" / "deep" / "er" / "inner.py").write_text("WEIGHT = 1.0\n")
    for name in ("relative", "relative.deep.er.inner"):
        assert sorted(imports.read(name).files) == ["relative/__init__.py", "relative/deep/er/inner.py"]


def test_a_file_is_sent_to_where_it_is_not(mine, tmp_path):
    sent = imports.read(str(mine))
    for name in sent.files:
        (tmp_path / name).unlink()
    assert sorted(sent.files) == ["mine.py", "neighbour.py"]
    imports.load_received([sent])
    assert "mine" in cp.learners.names()
    with pytest.raises(ValueError, match="import 'nowhere' is not installed here; install the same package"):
        imports.load_received([imports.Imported("nowhere", "0", {})])


BROKEN = {
    "no file": ("nowhere.py", None, r"nowhere\.py': there is no such file"),
    "no module": ("nowhere.at.all", None, "No module named 'nowhere'"),
    "not Python": ("mine.py", "x = (", "SyntaxError in line 1"),
    "fails": ("mine.py", "\n\n1 / 0", "ZeroDivisionError in line 3"),
    "ends": ("mine.py", "raise SystemExit(3)", "SystemExit in line 1"),
    "a taken name": ("mine.py", MINE.replace('"mine"', '"cpdpo"'), "'cpdpo' is registered already"),
    "a taken environment": ("mine.py", MINE.replace("def corridor", "def box"), "'box' is registered already"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_wrong_is_one_line_and_nothing_stays(mine, tmp_path, capsys, case):
    name, text, message = BROKEN[case]
    if text is not None:
        mine.write_text(text)
    known = cp.learners.names(), cp.envs.names()
    with pytest.raises(ValueError, match=message):
        imports.load([str(tmp_path / name) if name.endswith(".py") else name])
    assert (cp.learners.names(), cp.envs.names()) == known
    path = str(tmp_path / name) if name.endswith(".py") else name
    assert cli.main(["list", "--import", path]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_installed_packages_bring_learners_and_environments(tmp_path, monkeypatch, recwarn):
    """A package with entry points on the path, as pip would leave it, and one that cannot be loaded."""
    (tmp_path / "theirs.py").write_text(
        MINE.replace("from neighbour import WEIGHT", "WEIGHT = 1.0")
        .replace("cp.learners.register(", "MINE = (").replace("@cp.envs.register", "")
    )  # fmt: skip
    info = tmp_path / "theirs-1.2.dist-info"
    info.mkdir()
    (info / "RECORD").write_text("theirs.py,sha256=0,1\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(
        "[cpdpo_jax.learners]\nmine = theirs:MINE\nbroken = nowhere:X\nnone = theirs:WEIGHT\n"
        "[cpdpo_jax.environments]\ncorridor = theirs:corridor\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [entry.name for entry in metadata.entry_points(group="cpdpo_jax.environments")] == ["corridor"]
    for module in (base, registry):
        module._installed.cache_clear()
    try:
        with pytest.warns(UserWarning, match=r"of theirs 1\.2") as caught:
            assert "mine" in cp.learners.names()
        assert {str(warning.message).split()[0] for warning in caught} == {"'broken'", "'none'"}
        assert "corridor" in cp.envs.names()
        with pytest.warns(UserWarning, match="'broken' of theirs"):
            assert [plugin.source for plugin in plugins.load_plugins("cpdpo_jax.learners")] == ["theirs 1.2"] * 2
        blocks = expand(build_config(table("") | {"imports": []}))
        codes = {block["learner"]: block["code"] for block in blocks.values()}
        assert codes == {"mine": ["theirs 1.2"] * 2, "uniform": ["theirs 1.2"]}
        (info / "RECORD").write_text("theirs.pth,sha256=0,1\n")  # an editable install: its version says too little
        hashing._installed_names.cache_clear()
        found = []
        for _ in range(2):
            blocks = expand(build_config(table("") | {"imports": []}))
            found.append({block["learner"]: block["code"] for block in blocks.values()})
            (tmp_path / "theirs.py").write_text((tmp_path / "theirs.py").read_text() + "\n")
        assert [len(found[0][name]) for name in ("mine", "uniform")] == [4, 2]
        assert not {*found[0]["mine"], *found[0]["uniform"]} & {*found[1]["mine"], *found[1]["uniform"]} - {
            "theirs 1.2"
        }
    finally:
        monkeypatch.undo()
        for module in (base, registry):
            module._installed.cache_clear()
