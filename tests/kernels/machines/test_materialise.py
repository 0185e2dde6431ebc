"""`materialise` keeps arrays and derivatives, and a producer with several readers is computed once."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cpdpo_jax.kernels import paper_forms
from cpdpo_jax.kernels.machines.materialise import materialise
from cpdpo_jax.kernels.machines.target import tracing_for

module = importlib.import_module("cpdpo_jax.kernels.machines.materialise")

TREES: dict[str, Callable[[], Any]] = {
    "float": lambda: jnp.asarray([1.5, jnp.nan, -jnp.inf, -0.0]),
    "int": lambda: jnp.asarray([[3, -4]], jnp.int32),
    "unsigned": lambda: jnp.asarray([3, 4], jnp.uint32),
    "bool": lambda: jnp.asarray([True, False, True]),
    "scalar": lambda: jnp.float32(2.5),
    "empty": lambda: jnp.zeros((0, 3)),
    "no leaves": lambda: (),
    "tree": lambda: {"a": (jnp.asarray([True]), None), "b": [jnp.arange(3), jnp.ones((2, 2))]},
    "partly empty": lambda: [jnp.zeros((0, 3)), jnp.ones(2)],
}


@pytest.fixture
def lowering(request: Any, monkeypatch: Any) -> None:
    """Both lowerings for CPUs, independent of the jaxlib version."""
    monkeypatch.setattr(module, "BARRIER_HOLDS", request.param == "barrier")


both_lowerings = pytest.mark.parametrize("lowering", ["loop", "barrier"], indirect=True)


def assert_same(found: Any, expected: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for actual, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (actual.shape, actual.dtype) == (other.shape, other.dtype)
        np.testing.assert_array_equal(actual, other)


@both_lowerings
@pytest.mark.parametrize("name", TREES)
def test_values_are_unchanged_also_under_jit_and_vmap(lowering: None, name: str) -> None:
    tree = TREES[name]()
    assert_same(materialise(tree), tree)
    assert_same(jax.jit(lambda tree: materialise(tree))(tree), tree)
    if jax.tree.leaves(tree):
        several = jax.tree.map(lambda x: jnp.stack([x, x]), tree)
        assert_same(jax.vmap(lambda tree: materialise(tree))(several), several)
        assert_same(jax.jit(jax.vmap(lambda tree: materialise(tree)))(several), several)


@both_lowerings
def test_some_leaves_mapped_and_others_not(lowering: None) -> None:
    x, y = jnp.arange(6.0).reshape(2, 3), jnp.arange(3)
    assert_same(jax.vmap(lambda x: materialise((x, y)))(x), (x, jnp.stack([y, y])))


@both_lowerings
def test_derivatives_are_those_of_the_identity(lowering: None) -> None:
    """Derivatives with floats, ints and bools, in both modes, twice, and mapped."""

    def value(x: jax.Array, through: Callable[[Any], Any]) -> jax.Array:
        y, n, above = through((jnp.sin(x), jnp.arange(3), x > 0.5))
        return (jnp.where(above, y**3, y) * n.astype(x.dtype)).sum()

    x = jnp.asarray([0.3, 0.7, 1.1])
    for derivative in (jax.grad, jax.jacfwd, jax.hessian):
        found = derivative(lambda x: value(x, materialise))
        expected = derivative(lambda x: value(x, lambda tree: tree))
        np.testing.assert_allclose(found(x), expected(x), rtol=1e-6)
        several = jnp.stack([x, 2 * x])
        np.testing.assert_allclose(jax.jit(jax.vmap(found))(several), jax.vmap(expected)(several), rtol=1e-6)


def times_computed(through: Callable[[Any], Any]) -> int:
    """How many loops of the compiled program compute the floor of an array (a cheap operation) for three readers.

    A loop that yields one bool does not count: it is the loop of `materialise`'s condition, which reads one element.
    """

    def program(x: jax.Array) -> Any:
        floor = through(jnp.floor(x))
        return floor.sum(axis=0), floor.max(axis=1), jnp.flip(floor, 0) * 2

    text = jax.jit(program).lower(jnp.ones((64, 64))).compile().as_text()
    assert text is not None
    computations = re.split(r"\n(?=%|ENTRY)", text)
    return sum(" floor(" in body and "-> pred[] {" not in body for body in computations)


def test_a_producer_of_several_readers_is_computed_once() -> None:
    assert times_computed(lambda array: array) > 1  # the negative control
    assert times_computed(materialise) == 1


def test_both_lowerings_do_what_is_said_of_this_jaxlib() -> None:
    """The loop always works; unless `BARRIER_HOLDS`, XLA's CPU compiler removes the barrier before fusion."""
    assert times_computed(lambda array: module._fence(array)[0]) == 1
    assert (times_computed(jax.lax.optimization_barrier) == 1) == module.BARRIER_HOLDS


@pytest.mark.parametrize("context", [lambda: tracing_for("gpu"), paper_forms])
def test_accelerators_and_paper_forms_get_the_barrier(context: Callable[[], Any]) -> None:
    def text() -> str:
        return jax.jit(lambda x: materialise(jnp.floor(x)) + 1).lower(jnp.ones(3)).as_text()

    with context():
        assert "optimization_barrier" in text()
        assert "while" not in text()
    if not module.BARRIER_HOLDS:
        assert "while" in text()
        assert "optimization_barrier" not in text()
