"""Cases of every form in `forms.TABLE`: sizes for which the table chooses it, and its arguments."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cpdpo_jax import kernels
from cpdpo_jax.kernels import counting
from cpdpo_jax.kernels.machines import numba_form
from cpdpo_jax.kernels.machines.forms import TABLE, Kernel
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
