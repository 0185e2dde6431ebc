"""Every form in `forms.TABLE` against the paper's form, and that the table chooses it."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cpdpo_jax import kernels
from cpdpo_jax.common import notices
from cpdpo_jax.kernels import counting
from cpdpo_jax.kernels.machines import numba_form
from cpdpo_jax.kernels.machines.forms import TABLE, Kernel
from cpdpo_jax.kernels.machines.numba import calls, handlers
from cpdpo_jax.kernels.machines.sizes import MAX_ACCELERATOR_STATES, MAX_XLA_STATES
from cpdpo_jax.kernels.machines.target import tracing_for

TOLERANCE = {
    "float32": {"rtol": 1e-5, "atol": 4e-6},
    "float64": {"rtol": 1e-11, "atol": 1e-12},
    "exact": {"rtol": 0, "atol": 0},
}
EXACT = ("sample_path", "count_episode", "visited_rows")  # they copy, compare and add single numbers


class Case(NamedTuple):
    """A kernel, the form under test, and sizes for which the table must choose it."""

    name: str
    target: str  # "cpu" or "accelerator"
    where: str  # as in the table
    size: tuple[int, int, int]  # L, S, A
    lanes: tuple[int, ...] = (16,)
    payoffs: int = 2
    own: bool = False  # each lane has its own model
    dtype: str = "float32"
    padded: bool = True
    carry: bool = True

    def __str__(self) -> str:
        flags = [flag for flag in ("own", "padded", "carry") if getattr(self, flag)]
        return "-".join(map(str, (self.name, self.where, *self.size, self.lanes, self.payoffs, self.dtype, *flags)))


WIDE, NARROW = (3, 11, 2), (4, 5, 3)
VECTORS = (3, MAX_XLA_STATES + 1, 2)


def _cases() -> list[Case]:
    unrolled = Case("occupancy_bounds", "cpu", "unrolled:occupancy_bounds", NARROW)
    epoch = Case("renew_epoch", "cpu", "opaque_loops:renew_epoch", NARROW)
    cases = [base._replace(**change) for base in (unrolled, epoch) for change in (
        {}, {"dtype": "float64"}, {"size": (1, 3, 2)}, {"size": (2, 7, 2)}, {"lanes": ()}, {"lanes": (2, 3)},
        {"own": True},
    )]  # fmt: skip
    looped = Case("occupancy_bounds", "cpu", "opaque_loops:occupancy_bounds", VECTORS)
    cases += [looped._replace(**change) for change in (
        {}, {"dtype": "float64"}, {"size": (3, 10, 2)}, {"lanes": ()}, {"lanes": (2, 3)},
    )]  # fmt: skip
    by_sorting = Case("occupancy_bounds", "cpu", "numba", WIDE)
    cases += [by_sorting._replace(**change) for change in (
        {}, {"dtype": "float64"}, {"lanes": (32,)}, {"lanes": (5,)}, {"own": True}, {"size": (1, 11, 2)},
        {"size": (3, 17, 2)},
    )]  # fmt: skip
    for name in ("root_value", "truncated_evaluation", "optimistic_evaluation", "sample_path", "count_episode"):
        base = Case(name, "cpu", "numba", VECTORS)
        cases += [base._replace(**change) for change in (
            {}, {"dtype": "float64"}, {"lanes": (32,)}, {"own": True, "lanes": (32,)}, {"size": (1, 9, 2)},
            {"size": (3, 17, 3)}, *({"payoffs": k} for k in (1, 3, 4, 5)),
            {"own": True, "payoffs": 3, "dtype": "float64"},
        )]  # fmt: skip
    cases += [
        Case("count_episode", "cpu", "numba", VECTORS, carry=False, dtype=dtype) for dtype in ("float32", "float64")
    ]
    cases += [Case("visited_rows", "cpu", "numba", size, lanes) for size, lanes in (
        (VECTORS, (16,)), (VECTORS, (32,)), ((3, 17, 3), (16,)), ((2, 9, 2), (16,)),
    )]  # fmt: skip
    for name, forms in TABLE.items():
        base = Case(name, "accelerator", f"accelerator:{name}", NARROW, lanes=(3,))
        changes: list[dict[str, Any]] = [
            {}, {"dtype": "float64"}, {"own": True}, {"size": (2, 9, 2)}, {"size": (3, MAX_ACCELERATOR_STATES, 2)},
            {"lanes": (2, 3)}, {"payoffs": 1}, {"payoffs": 3},
        ]  # fmt: skip
        if name not in ("occupancy_bounds", "dilated_bonus"):  # they have no such form in one layer
            changes.append({"size": (1, 4, 2)})
        if any(form.target == "accelerator" for form in forms):
            cases += [base._replace(**change) for change in changes]
    return cases


CASES = _cases()
FIRST = list({(case.name, case.where): case for case in reversed(CASES)}.values())  # one case of each form
DOUBLES = ("root_value", "count_episode")  # elsewhere the numba kernels in double precision are exhaustive


def is_exhaustive(case: Case) -> bool:
    """Compiles machine code of seconds for double precision, or repeats a size, type or width of an accelerator's form
    that two kernels meet in any case.
    """
    if case.where == "numba":
        return (case.dtype == "float64" and case.name not in DOUBLES) or case.payoffs in (1, 4, 5)
    of_both = case.target == "cpu" or case.name in ("occupancy_bounds", "optimistic_evaluation")
    return not of_both and case != first_of(case) and not case.own


def first_of(case: Case) -> Case:
    return next(first for first in FIRST if (first.name, first.where) == (case.name, case.where))


def parameters(cases: list[Case]) -> list[Any]:
    return [pytest.param(case, id=str(case), marks=[pytest.mark.exhaustive] * is_exhaustive(case)) for case in cases]


each_case = pytest.mark.parametrize("case", parameters(CASES))
each_form = pytest.mark.parametrize("case", FIRST, ids=str)


def kernel_of(case: Case) -> Kernel[..., Any]:
    home = counting if case.name in ("count_episode", "visited_rows") else kernels
    return getattr(home, case.name)


def traced_for(case: Case) -> AbstractContextManager[None]:
    return tracing_for("gpu" if case.target == "accelerator" else "cpu")


def expected_form(case: Case, arguments: tuple[Any, ...]) -> Callable[..., Any]:
    if case.where == "numba":
        form = numba_form.find(kernel_of(case).paper, arguments)
        assert form is not None
        return form
    module, function = case.where.split(":")
    return getattr(importlib.import_module(f"cpdpo_jax.kernels.machines.{module}"), function)


def arguments_of(case: Case) -> tuple[Any, ...]:
    """Random arguments; padded: the last state of later layers is padding and state 1 lacks its last action."""
    (n_layers, n_states, n_actions), lanes = case.size, case.lanes
    rng = np.random.default_rng([*case.size, *lanes, case.payoffs])
    models = lanes if case.own else (1,) * len(lanes)
    pairs, rows = (n_layers, n_states, n_actions), (n_layers - 1, n_states, n_actions, n_states)

    mask: Any = np.ones(pairs, bool)
    if case.padded:
        mask[1:, -1] = False
        mask[:, 1, -1] = False
    real: Any = mask.any(axis=2)[1:, None, None]  # next states
    mask, real = (array.reshape(*array.shape, *(1,) * len(lanes)) for array in (mask, real))

    def share(*shape: int, among: Any = True, axis: int) -> np.ndarray:
        weights = (rng.random(shape) + 0.01) * among
        return weights / np.maximum(weights.sum(axis=axis, keepdims=True), 1e-30)

    policy = share(*pairs, *lanes, among=mask, axis=2)
    transition = share(*rows, *models, among=real, axis=3)
    counts = rng.integers(0, 4, (*rows, *lanes)) * real
    counts[:, 0] = 0  # never visited
    visits = np.concatenate([counts.sum(axis=3), rng.integers(0, 5, (1, *pairs[1:], *lanes))]).astype(np.int32)
    state = rng.integers(0, n_states - 1, (n_layers, *lanes)).astype(np.int32)
    action = rng.integers(0, n_actions, (n_layers, *lanes)).astype(np.int32)
    totals = rng.random((case.payoffs, *pairs, *lanes)) * np.maximum(visits, 1)
    lower, upper = transition * 0.7, np.minimum(transition * 1.2 + 0.05, 1) * real
    after = np.flip(np.cumsum(np.flip(transition, 3), axis=3), 3) - transition
    epoch = [np.broadcast_to(bound, (*rows, *lanes)) for bound in (lower, upper)]
    drawn = rng.random((case.payoffs, n_layers, *lanes))
    named: dict[str, tuple[Any, ...]] = {
        "policy_value": (transition, policy, rng.random((case.payoffs, *pairs, *models))),
        "root_value": (transition, policy, rng.random((case.payoffs, *pairs, *models))),
        "truncated_evaluation": (
            counts, np.maximum(visits, 1).astype(float), policy, rng.normal(0.3, 0.5, totals.shape),
            rng.random((case.payoffs, n_layers, *(1,) * len(lanes))) * n_layers,
        ),
        "optimistic_evaluation": (counts, visits, policy, totals, rng.random((n_layers, *lanes)) * 1.5),
        "sample_path": (
            policy, np.flip(np.cumsum(np.flip(mask, 2), axis=2), 2) - mask == 0,
            np.where(after > 1e-9, np.cumsum(transition, axis=3), 2.0), rng.random((case.payoffs, *pairs, *models)),
            rng.random((n_layers, 2 + case.payoffs, *lanes)),
        ),
        "count_episode": (
            state, action, drawn if case.carry else (drawn < 0.5).astype(float), visits, counts,
            totals if case.carry else np.floor(totals), 
            np.finfo(case.dtype).eps / 8 * totals * rng.random(totals.shape) if case.carry else None,
        ),
        "visited_rows": (state, action, counts),
        "occupancy_bounds": (policy, lower, upper),
        "dilated_bonus": (
            policy, rng.random((n_layers, n_states, *lanes)), lower, upper,
            rng.uniform(1, 2, lanes) if case.own else np.asarray(1.25),
        ),
        "renew_epoch": (
            rng.random(lanes) < 0.5 if lanes else np.asarray(True),
            kernels.Epoch(*epoch, visits=visits // 2),  # pyright: ignore[reportArgumentType]
            visits, counts, np.broadcast_to(real[:, 0, 0], (n_layers - 1, n_states, *real.shape[4:])),
            rng.uniform(0.1, 2, lanes if case.own else (1,) * len(lanes)),
        ),
    }  # fmt: skip
    types = {"f": case.dtype, "i": "int32", "b": "bool"}
    return jax.tree.map(lambda array: jnp.asarray(array, types[array.dtype.kind]), named[case.name])


def assert_equal(found: Any, expected: Any, accuracy: str) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for actual, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (actual.shape, actual.dtype) == (other.shape, other.dtype)
        tolerance = TOLERANCE[accuracy if jnp.issubdtype(actual.dtype, jnp.floating) else "exact"]
        np.testing.assert_allclose(actual, other, **tolerance)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return jax.jit(function)


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


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=str(case), marks=[pytest.mark.exhaustive] * is_exhaustive(case)) for case in DIFFERENTIABLE],
)
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
