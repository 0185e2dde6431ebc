"""A user's own learners and environments: from a file or a module, known by a hash, with runs stored like ours."""

from __future__ import annotations

import dataclasses
import json
from importlib import metadata
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax import cli
from cpdpo_jax.common import plugins
from cpdpo_jax.envs import registry
from cpdpo_jax.learners import base
from cpdpo_jax.sweeps import by_hand, imports
from cpdpo_jax.sweeps.run import asked
from cpdpo_jax.sweeps.specification import expand
from cpdpo_jax.sweeps.store import Store

pytestmark = pytest.mark.usefixtures("standard_promotion")

MINE = '''"""Plays the first actions more often."""
import jax.numpy as jnp
import cpdpo_jax as cp
from cpdpo_jax.learners import Info, Learner, NoHyperparameters
from neighbour import WEIGHT

def policy(problem, hyper, state):
    first = jnp.arange(problem.action_mask.shape[2]) == 0
    weights = problem.action_mask * (1.0 + WEIGHT * first[None, None, :, None])
    return weights / jnp.maximum(weights.sum(axis=2, keepdims=True), 1)

def update(problem, hyper, state, policy, trajectory):
    return state, Info(jnp.zeros_like(problem.threshold), jnp.zeros(problem.delta.shape, jnp.int32))

cp.learners.register(Learner("mine", lambda problem, preset: NoHyperparameters(),
                             lambda problem, hyper: jnp.zeros_like(problem.delta), policy, update))

@cp.envs.register
def corridor(layers: int = 3):
    "A small one of my own."
    return cp.envs.make("random", layers=layers, states=2, actions=2, constraints=1)
'''


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A file of a user's own and one beside it; forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "neighbour.py").write_text("WEIGHT = 1.0\n")
    (tmp_path / "mine.py").write_text(MINE)
    yield tmp_path / "mine.py"
    imports._LOADED.clear()
    for name in ("mine", "twice"):
        base.unregister(name)
    registry.unregister("corridor")
    imports.sys.modules.pop("neighbour", None)


def table(path: Path | str) -> dict:
    return {"learners": ["mine", "uniform"], "environments": ["corridor"], "episodes": 40, "seeds": 3,
            "imports": [str(path)]}  # fmt: skip


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
    with pytest.raises(ValueError, match=r"mine\.py has changed since .*a was begun \(hash .* then, .* now\)"):
        cp.run(table(mine), out=tmp_path / "a", progress=False)
    (after,) = cp.run(table(mine), out=tmp_path / "b", progress=False)
    one, other = before.result.data.strong_regret, after.result.data.strong_regret
    assert (one.sel(learner="mine").values != other.sel(learner="mine").values).all()
    np.testing.assert_array_equal(one.sel(learner="uniform"), other.sel(learner="uniform"))
    assert not set(Store(tmp_path / "a").blocks) & set(Store(tmp_path / "b").blocks)


def tilted(weight: float):
    """A policy that takes its weight along."""

    def policy(problem, hyper, state):
        weights = problem.action_mask * (1 + weight * (jnp.arange(problem.action_mask.shape[2]) == 0))[:, None]
        return weights / jnp.maximum(weights.sum(axis=2, keepdims=True), 1)

    return policy


def test_by_hand_another_of_the_same_name_is_not_taken_for_the_first(tmp_path):
    """Taken back and registered anew, as in a notebook."""
    asked, found = table("") | {"learners": ["mine"], "environments": ["factored"], "imports": []}, []
    for weight in (1.0, 9.0, 1.0):
        cp.learners.register(dataclasses.replace(cp.learners.get("uniform"), name="mine", policy=tilted(weight)))
        try:
            if weight == 9:
                with pytest.raises(ValueError, match=r"a was run by other code of your own"):
                    cp.run(asked, out=tmp_path / "a", progress=False)
            out = tmp_path / ("a" if weight == 1 else "b")
            (stored,) = cp.run(asked, out=out, progress=False)
            found.append((stored.result.data.strong_regret.values, set(Store(out).blocks)))
        finally:
            cp.learners.unregister("mine")
    (first, own), (second, other), (again, same) = found
    assert (first != second).all()
    assert not own & other
    np.testing.assert_array_equal(first, again)
    assert own == same


CELL = """
def helper(x):
    return RATE * x

def policy(problem, hyper, state):
    return helper(problem)
"""


def test_a_value_that_a_cell_reads_from_another_is_part_of_its_code():
    """As in a notebook, where the text of a function does not say what RATE is; the same in every turn."""

    def digest(rate: float, wrap=lambda function: function) -> str:
        cell: dict = {"RATE": rate, "__name__": "cell"}
        exec(compile(CELL, "<cell>", "exec"), cell)
        return by_hand._digest(dataclasses.replace(cp.learners.get("uniform"), policy=wrap(cell["policy"])))

    assert digest(1.0) == digest(1.0)
    assert digest(1.0) != digest(9.0)
    assert digest(1.0, jax.jit) != digest(9.0, jax.jit)


def test_an_environment_by_hand_is_not_taken_for_another(tmp_path):
    def build(states: int):
        def corridor():
            return cp.envs.make("random", layers=2, states=states, actions=2, constraints=1)

        return corridor

    asked, found = table("") | {"learners": ["uniform"], "imports": []}, []
    for states in (2, 3):
        cp.envs.register(build(states))
        try:
            (stored,) = cp.run(asked, out=tmp_path / str(states), progress=False)
            found.append(stored.result.data.strong_regret.values)
        finally:
            registry.unregister("corridor")
    assert (found[0] != found[1]).all()


def test_without_imports_a_block_is_what_it_was():
    blocks = expand(asked({"learners": ["uniform"], "environments": ["factored"], "episodes": 40, "seeds": 3}))
    assert all("code" not in block for block in blocks.values())


def test_a_module_is_known_by_its_source(mine, tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("from package.learner import *\n")
    (tmp_path / "package" / "learner.py").write_text(MINE)
    first = imports.read("package")
    assert len(expand(asked(table("package")))) == 2
    (tmp_path / "package" / "learner.py").write_text(MINE + "\n")
    assert imports.read("package").digest != first.digest
    assert [one.digest for one in imports.load(["package"])] == [imports.read("package").digest]
    for name in [name for name in imports.sys.modules if name.startswith("package")]:
        imports.sys.modules.pop(name)


def test_a_file_is_sent_to_where_it_is_not(mine, tmp_path):
    sent = imports.read(str(mine))
    for name in sent.files:
        (tmp_path / name).unlink()
    assert sorted(sent.files) == ["mine.py", "neighbour.py"]
    imports.load_sent([sent])
    assert "mine" in cp.learners.names()
    with pytest.raises(ValueError, match="import 'nowhere' is not installed here; install the same package"):
        imports.load_sent([imports.Imported("nowhere", "0", {})])


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
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(
        "[cpdpo_jax.learners]\nmine = theirs:MINE\nbroken = nowhere:X\nnone = theirs:WEIGHT\n"
        "[cpdpo_jax.environments]\ncorridor = theirs:corridor\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [one.name for one in metadata.entry_points(group="cpdpo_jax.environments")] == ["corridor"]
    for module in (base, registry):
        module._installed.cache_clear()
    try:
        with pytest.warns(UserWarning, match=r"of theirs 1\.2") as told:
            assert "mine" in cp.learners.names()
        assert {str(one.message).split()[0] for one in told} == {"'broken'", "'none'"}
        assert "corridor" in cp.envs.names()
        with pytest.warns(UserWarning, match="'broken' of theirs"):
            assert [one.source for one in plugins.installed("cpdpo_jax.learners")] == ["theirs 1.2"] * 2
        blocks = expand(asked(table("") | {"imports": []}))
        codes = {block["learner"]: block["code"] for block in blocks.values()}
        assert codes == {"mine": ["theirs 1.2"] * 2, "uniform": ["theirs 1.2"]}
    finally:
        monkeypatch.undo()
        for module in (base, registry):
            module._installed.cache_clear()
