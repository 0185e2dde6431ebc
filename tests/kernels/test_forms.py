"""Every form in `forms.TABLE` against the paper's form, and that the table chooses it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cpdpo_jax import kernels
from cpdpo_jax.common import notices
from cpdpo_jax.kernels import counting
from cpdpo_jax.kernels.machines.forms import TABLE
from cpdpo_jax.kernels.machines.numba import calls, handlers
from tests.kernels.form_cases import (
    CASES,
    EXACT,
    FIRST,
    VECTORS,
    Case,
    arguments_of,
    assert_equal,
    compiled,
    each_case,
    each_form,
    expected_form,
    kernel_of,
    parameters,
    traced_for,
)


def test_every_form_of_the_table_has_a_case() -> None:
    table = {(name, form.target, form.where) for name, forms in TABLE.items() for form in forms}
    assert table == {(case.name, case.target, case.where) for case in CASES}


@each_case
def test_the_form_is_chosen_and_equals_the_papers(case: Case) -> None:
    kernel = kernel_of(case)
    with jax.enable_x64(case.dtype == "float64"):
        arguments = arguments_of(case)
        with traced_for(case):
            form = kernel.form(*arguments)
            assert form is expected_form(case, arguments)
            assert form is not kernel.paper
            found = compiled(lambda *given: kernel(*given))(*arguments)
        accuracy = "exact" if case.name in EXACT else case.dtype
        assert_equal(found, compiled(kernel.paper)(*arguments), accuracy)


@each_form
def test_paper_forms_switches_the_form_off(case: Case) -> None:
    kernel, arguments = kernel_of(case), arguments_of(case)
    with traced_for(case), kernels.paper_forms():
        assert kernel.form(*arguments) is kernel.paper
        text = str(jax.make_jaxpr(lambda *given: kernel(*given))(*arguments))
    assert "ffi_call" not in text
    with traced_for(case):
        assert text != str(jax.make_jaxpr(lambda *given: kernel(*given))(*arguments))


@each_form
def test_forms_of_concrete_arrays_and_of_named_arguments(case: Case) -> None:
    """A call outside jit compiles the form; arguments are unchanged, even by forms that update in place."""
    kernel, arguments = kernel_of(case), arguments_of(case)
    before = jax.tree.map(np.array, arguments)
    names = inspect.signature(kernel.paper).parameters
    with traced_for(case):
        found = kernel(*arguments)
        assert_equal(kernel(**dict(reversed(list(zip(names, arguments, strict=True))))), found, case.dtype)
    assert_equal(found, compiled(kernel.paper)(*arguments), case.dtype)
    jax.tree.map(np.testing.assert_array_equal, before, arguments)


@pytest.mark.parametrize("case", [*FIRST, next(case for case in CASES if not case.carry)], ids=str)
def test_forms_under_vmap(case: Case) -> None:
    """Map some arguments over an additional axis after the lanes."""
    kernel, arguments = kernel_of(case), arguments_of(case)
    axes = tuple(None if i == len(arguments) - 1 else -1 for i in range(len(arguments)))
    several = tuple(
        argument if axis is None else jax.tree.map(lambda x: jnp.stack([x, jnp.roll(x, 1, axis=-1)], axis=-1), argument)
        for axis, argument in zip(axes, arguments, strict=True)
    )
    with traced_for(case):
        found = compiled(jax.vmap(lambda *given: kernel(*given), in_axes=axes))(*several)
    for i in range(2):
        alone = tuple(
            argument if axis is None else jax.tree.map(lambda x, i=i: x[..., i], argument)
            for axis, argument in zip(axes, several, strict=True)
        )
        assert_equal(jax.tree.map(lambda x, i=i: x[i], found), compiled(kernel.paper)(*alone), case.dtype)


def is_float(array: Any) -> bool:
    return jnp.issubdtype(array.dtype, jnp.floating)


def weighted_sum(function: Callable[..., Any], case: Case, floats: list[Any], rest: list[Any], structure: Any) -> Any:
    """A weighted sum of all floating results of `function`; `rest` has None in the places of the floats."""
    remaining = iter(floats)
    arguments = jax.tree.unflatten(structure, [next(remaining) if leaf is None else leaf for leaf in rest])
    rng = np.random.default_rng(5)
    results = [leaf for leaf in jax.tree.leaves(function(*arguments)) if is_float(leaf)]
    return sum((jnp.asarray(rng.random(leaf.shape), leaf.dtype) * leaf).sum() for leaf in results)


# In float64 and without padding, because the derivative is not unique for targets that are 0 everywhere.
DIFFERENTIABLE = [
    case._replace(dtype="float64", padded=False)
    for case in FIRST
    if case.name != "visited_rows"  # it returns counts
]


@pytest.mark.parametrize("case", parameters(DIFFERENTIABLE))
def test_forms_under_jvp_and_grad(case: Case) -> None:
    kernel = kernel_of(case)
    with jax.enable_x64(True):
        leaves, structure = jax.tree.flatten(arguments_of(case))
        floats, rest = [x for x in leaves if is_float(x)], [None if is_float(x) else x for x in leaves]
        rng = np.random.default_rng(6)
        direction = [jnp.asarray(rng.standard_normal(x.shape)) for x in floats]

        def derivatives(function: Callable[..., Any]) -> Any:
            def value(*floats: Any) -> Any:
                return weighted_sum(function, case, list(floats), rest, structure)

            slopes = compiled(jax.grad(value, argnums=tuple(range(len(floats)))))(*floats)
            along = compiled(lambda *given: jax.jvp(value, given, tuple(direction)))(*floats)
            return slopes, along

        with traced_for(case):
            slopes, along = derivatives(lambda *given: kernel(*given))
        expected = derivatives(kernel.paper)
    assert_equal((slopes, along), expected, "float64")
    assert any(np.any(np.asarray(slope) != 0) for slope in slopes)
    total = sum(float(np.vdot(slope, d)) for slope, d in zip(slopes, direction, strict=True))
    np.testing.assert_allclose(along[1], total, rtol=1e-9)


@pytest.mark.parametrize("carry", [False, True])
@pytest.mark.parametrize("target", ["cpu", "accelerator"])
def test_counting_under_jvp_with_all_its_arguments(carry: bool, target: str) -> None:
    """Counts have tangents of type float0; without a carry there is neither a result nor a tangent."""
    case = Case("count_episode", target, "numba", VECTORS, carry=carry)
    with traced_for(case):
        arguments = arguments_of(case)
        tangents = jax.tree.map(
            lambda x: jnp.ones_like(x) if is_float(x) else np.zeros(x.shape, jax.dtypes.float0), arguments
        )
        found = jax.jvp(counting.count_episode, arguments, tangents)
    expected = jax.jvp(counting.count_episode.paper, arguments, tangents)
    assert_equal(found[0], expected[0], "float32")
    assert [x.dtype for x in found[1][:2]] == [jax.dtypes.float0] * 2
    assert (found[1][3] is None) is not carry
    assert_equal(found[1][2:], expected[1][2:], "float32")


def _fails(*given: Any, **options: Any) -> Any:
    raise AttributeError("no such instruction")


@pytest.mark.parametrize("part", ["compiler", "interface", "version", "import"])
def test_a_numba_that_cannot_compile_is_one_warning_and_the_papers_form(monkeypatch: Any, part: str) -> None:
    for name, empty in (("_CALLS", {}), ("_HANDLERS", {})):
        monkeypatch.setattr(calls, name, empty)
    monkeypatch.setattr(notices, "_ISSUED", set())
    if part == "import":
        monkeypatch.setitem(sys.modules, handlers.__name__, None)
    else:
        owner, name = {
            "compiler": (handlers, "compiled"),
            "interface": (jax.ffi, "register_ffi_target"),
            "version": (calls, "runtime_version"),
        }[part]
        monkeypatch.setattr(owner, name, _fails)
    numba = [case for case in FIRST if case.where == "numba"]
    with pytest.warns(RuntimeWarning, match="could not be compiled .* pure JAX is used instead") as caught:
        chosen = [kernel_of(case).form(*arguments_of(case)) for case in numba]
    assert chosen == [kernel_of(case).paper for case in numba]
    assert len(caught) == 1
    case = next(case for case in numba if case.name == "root_value")
    kernel, arguments = kernel_of(case), arguments_of(case)
    assert_equal(kernel(*arguments), compiled(kernel.paper)(*arguments), case.dtype)
