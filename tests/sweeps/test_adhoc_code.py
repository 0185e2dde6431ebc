"""Learners and environments that a script registers itself: identified by a hash of their code."""

from __future__ import annotations

import dataclasses
import functools
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.envs import registry
from cpdpo_jax.sweeps import adhoc_code
from cpdpo_jax.sweeps.store import Store
from tests.sweeps.user_code import table

pytestmark = pytest.mark.usefixtures("standard_promotion")


def tilted(weight: float):
    """A policy that takes its weight along."""

    def policy(problem, hyper, state):
        weights = problem.action_mask * (1 + weight * (jnp.arange(problem.action_mask.shape[2]) == 0))[:, None]
        return weights / jnp.maximum(weights.sum(axis=2, keepdims=True), 1)

    return policy


def test_by_hand_another_of_the_same_name_is_not_taken_for_the_first(tmp_path):
    """Taken back and registered anew, as in a notebook."""
    sweep, found = table("") | {"learners": ["mine"], "environments": ["factored"], "imports": []}, []
    for weight in (1.0, 9.0, 1.0):
        cp.learners.register(dataclasses.replace(cp.learners.get("uniform"), name="mine", policy=tilted(weight)))
        try:
            if weight == 9:
                with pytest.raises(
                    ValueError, match=r"a was run with a different version of a learner or an environment"
                ):
                    cp.run(sweep, out=tmp_path / "a", progress=False)
            out = tmp_path / ("a" if weight == 1 else "b")
            (stored,) = cp.run(sweep, out=out, progress=False)
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
        return adhoc_code._digest(dataclasses.replace(cp.learners.get("uniform"), policy=wrap(cell["policy"])))

    assert digest(1.0) == digest(1.0)
    assert digest(1.0) != digest(9.0)
    assert digest(1.0, jax.jit) != digest(9.0, jax.jit)


def test_an_environment_by_hand_is_not_taken_for_another(tmp_path):
    def build(states: int):
        def corridor():
            return cp.envs.make("random", layers=2, states=states, actions=2, constraints=1)

        return corridor

    sweep, found = table("") | {"learners": ["uniform"], "imports": []}, []
    for states in (2, 3):
        cp.envs.register(build(states))
        try:
            (stored,) = cp.run(sweep, out=tmp_path / str(states), progress=False)
            found.append(stored.result.data.strong_regret.values)
        finally:
            registry.unregister("corridor")
    assert (found[0] != found[1]).all()


def test_by_hand_a_change_in_what_its_file_imports_is_seen(library, tmp_path, monkeypatch):
    """A learner that a module registers when the script imports it."""
    changed = library("package")
    (tmp_path / "own.py").write_text("from mylib.core import WEIGHT\ndef policy():\n    return 3\n")
    policy = importlib.import_module("own").policy
    before = adhoc_code._digest(policy)
    assert adhoc_code._digest(policy) == before
    changed.write_text("WEIGHT = 9.0\n")
    assert adhoc_code._digest(policy) != before


def given(default=None, *, keyword=None, captured=None):
    """A function that takes these values along, each in its own way."""

    def policy(problem, first=default, *, second=keyword):
        return captured, first, second

    return policy


class Box:
    """A user's object."""

    def __init__(self, value):
        self.value = value


CAPTURED = {
    "a default": lambda x: given(x),
    "a keyword's default": lambda x: given(keyword=x),
    "a captured value": lambda x: given(captured=x),
    "a captured list": lambda x: given(captured=[0, x]),
    "a captured table": lambda x: given(captured={"a": 0, "b": x}),
    "the keys of a captured table": lambda x: given(captured={str(x): 0}),
    "a captured object": lambda x: given(captured=Box(x)),
    "a captured array": lambda x: given(captured=np.array([0.0, x])),
    "a jax array": lambda x: given(captured=jnp.array([0.0, x])),
    "the argument of a partial": lambda x: functools.partial(given(), x),
    "the keyword of a partial": lambda x: functools.partial(given(), second=x),
    "the function of a partial": lambda x: functools.partial(given(captured=x), 1),
    "a captured function": lambda x: given(captured=given(captured=x)),
    "a method's object": lambda x: given(captured=Box(Box(x))),
}


@pytest.mark.parametrize("case", CAPTURED)
def test_a_value_that_a_function_takes_along_is_part_of_its_code(case):
    make = CAPTURED[case]
    assert adhoc_code._digest(make(1.0)) == adhoc_code._digest(make(1.0))
    assert adhoc_code._digest(make(1.0)) != adhoc_code._digest(make(9.0))


def test_arrays_of_the_same_bytes_are_told_apart_by_type_and_shape():
    arrays = [np.zeros(4, np.float32), np.zeros((2, 2), np.float32), np.zeros(4, np.int32), np.zeros(2)]
    assert len({adhoc_code._digest(given(captured=array)) for array in arrays}) == 4


def test_only_what_is_not_of_this_package_is_hashed(tmp_path):
    """Built-in learners and environments have none, imported ones neither."""
    assert adhoc_code.code_hashes("uniform", "factored", set()) == []
    cp.learners.register(dataclasses.replace(cp.learners.get("uniform"), name="mine", policy=tilted(1.0)))
    cp.envs.register(corridor)
    try:
        (own,) = adhoc_code.code_hashes("mine", "factored", set())
        (other,) = adhoc_code.code_hashes("uniform", "corridor", set())
        assert own.startswith("by hand ")
        assert own != other
        assert adhoc_code.code_hashes("mine", "corridor", set()) == [own, other]
        assert adhoc_code.code_hashes("mine", "corridor", {"mine"}) == [other]
        assert adhoc_code.code_hashes("mine", "corridor", {"corridor"}) == [own]
    finally:
        cp.learners.unregister("mine")
        registry.unregister("corridor")


def corridor():
    """An environment by hand."""
    return cp.envs.make("factored")
