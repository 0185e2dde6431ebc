"""Errors in user code name the learner or environment, the file and the line; errors of the package do not."""

from __future__ import annotations

import dataclasses
import functools

import jax
import pytest

from cpdpo_jax import cli
from cpdpo_jax.learners import base
from cpdpo_jax.sweeps import imports, user_errors

MINE = """
import dataclasses
import cpdpo_jax as cp

def helper(x):
    return x.nothing

def update(*arguments):
    return helper(arguments)

def bad_value(*arguments):
    raise ValueError("my message.")

for name, function in {"mine": update, "values": bad_value}.items():
    cp.learners.register(dataclasses.replace(cp.learners.get("uniform"), name=name, update=function))

def corridor(length: int = 3) -> cp.CMDP:
    "A corridor."
    return {}["missing"]

cp.envs.register(corridor)
"""
CASES = {
    "a learner": (
        ["--learner", "mine", "--env", "hard"],
        "learner 'mine' (update), {file}, line 6, in helper: AttributeError: 'tuple' object has no attribute 'nothing'",
    ),
    "a learner's ValueError": (
        ["--learner", "values", "--env", "hard"],
        "learner 'values' (update), {file}, line 12, in bad_value: ValueError: my message",
    ),
    "an environment": (
        ["--learner", "uniform", "--env", "corridor"],
        "environment 'corridor', {file}, line 19, in corridor: KeyError: 'missing'",
    ),
}


@pytest.fixture(autouse=True)
def unloaded():
    yield
    imports.load_received([])


@pytest.mark.parametrize("case", CASES)
def test_the_command_line_names_the_place(case, tmp_path, capsys):
    flags, message = CASES[case]
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    size = ["--episodes", "10", "--seeds", "1", "--out", str(tmp_path / "out")]
    assert cli.main(["run", "--import", str(file), *flags, *size]) == 1
    *_, last = capsys.readouterr().err.strip().splitlines()
    assert last == f"cpdpo: {message.format(file=file)} (an error in your code; --debug shows the stack trace)"


def test_errors_of_the_package_have_no_place(tmp_path):
    """Also where a user's code, here this file, calls the package."""
    with pytest.raises(ValueError, match="there is no such file") as caught:
        imports.load([str(tmp_path / "missing.py")])
    assert user_errors.describe(caught.value) is None
    assert user_errors.describe(ZeroDivisionError()) is None


@pytest.mark.parametrize("name", ["hyperparameters", "init", "policy", "update", "mixture"])
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, functools.partial, lambda f: functools.partial(jax.jit(f), 1)])
def test_every_function_of_a_learner_is_named(name, wrap):
    """Also inside wrappers."""

    def own(*arguments):
        return arguments

    learner = dataclasses.replace(base.get("uniform"), name="mine", compiled=False, **{name: wrap(own)})
    base.register(learner)
    try:
        assert user_errors._names({own.__code__}) == f"learner 'mine' ({name}), "
        assert user_errors._names({test_errors_of_the_package_have_no_place.__code__}) == ""
    finally:
        base.unregister("mine")
