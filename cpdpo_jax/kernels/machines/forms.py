"""The table of forms: the form of each kernel for each target and size, with reasons, and the decorator `kernel`.

Every kernel is written once as in the paper, in pure JAX, and decorated with `kernel`. The table lists its other forms.
A kernel uses the first form whose target and condition match, or the paper's form if none does. All forms of a kernel
agree up to rounding (tests/kernels/test_forms.py compares each with the paper's).
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar, cast

import jax
import jax.numpy as jnp
from jax.core import Tracer

from cpdpo_jax.kernels.machines.materialise import materialise
from cpdpo_jax.kernels.machines.sizes import (
    MAX_ACCELERATOR_STATES,
    MAX_BREAKPOINTS,
    MAX_UNROLLED_STATES,
    MAX_UNROLLED_TERMS,
    MAX_XLA_STATES,
    SIMD_LANES,
)
from cpdpo_jax.kernels.machines.target import for_accelerator, only_paper_forms

P = ParamSpec("P")
R = TypeVar("R")

MATERIALISED_ON_ACCELERATOR = ("count_episode",)  # other results fuse into their readers: CPD-PO saves six launches


class Sizes(NamedTuple):
    """The properties of the arguments on which the choice of a form depends."""

    layers: int
    states: int
    actions: int
    lanes: tuple[int, ...]  # the batch shape
    dtype: Any  # of the floating-point arguments; None without any


class Form(NamedTuple):
    """An alternative to the paper's form of a kernel."""

    target: str  # "cpu" or "accelerator"
    fits: Callable[[Sizes], bool]
    where: str  # module:function in `kernels.machines`, or "numba"
    reason: str  # the measured gain (64 lanes, float32, jax 0.10.2)


def _is_narrow(sizes: Sizes) -> bool:
    few = sizes.layers * sizes.actions * sizes.states**2 <= MAX_UNROLLED_TERMS
    return sizes.states <= MAX_UNROLLED_STATES or (sizes.states <= MAX_BREAKPOINTS and few)


def _fits_one_function(sizes: Sizes) -> bool:
    """Whether XLA compiles the loop over episodes to one function."""
    return sizes.states <= MAX_XLA_STATES


def _needs_sorting(sizes: Sizes) -> bool:
    return not _is_narrow(sizes) and len(sizes.lanes) == 1 and _is_float(sizes)


def _fills_vectors(sizes: Sizes) -> bool:
    """Whether there is one batch axis, a multiple of the vector width, and layers are too wide for XLA's code."""
    divisible = len(sizes.lanes) == 1 and sizes.lanes[0] % SIMD_LANES == 0
    return sizes.states > MAX_XLA_STATES and divisible and _is_float(sizes)


def _is_float(sizes: Sizes) -> bool:
    return sizes.dtype is None or sizes.dtype in (jnp.float32, jnp.float64)


def _has_few_states(sizes: Sizes) -> bool:
    return sizes.states <= MAX_ACCELERATOR_STATES


def _has_few_states_and_layers(sizes: Sizes) -> bool:
    return _has_few_states(sizes) and sizes.layers > 1


_SORTED = "sorting f costs S per target, breakpoints S^2: 0.04 of CPD-PO's time at 20 x 20 x 5"
_REGISTERS = "sums stay in registers, tables are read at visited entries: 0.2 of CPD-OPPO's time at 10 x 10 x 4"
_ONE_FUNCTION = "one function between numba's: 0.45 of the scan's time, 0.84 of plain unrolling's (CPD-PO, 8 x 8 x 4)"
_LAUNCHES = "fewer kernel launches (counted with XLA's GPU compiler; not run on a GPU)"

TABLE: dict[str, tuple[Form, ...]] = {
    "occupancy_bounds": (
        Form("cpu", _fits_one_function, "unrolled:occupancy_bounds", "0.6 of the scan's time at 5 x 5 x 3"),
        Form("cpu", _is_narrow, "opaque_loops:occupancy_bounds", _ONE_FUNCTION),
        Form("cpu", _needs_sorting, "numba", _SORTED),
        Form("accelerator", _has_few_states_and_layers, "accelerator:occupancy_bounds", _LAUNCHES),
    ),
    "dilated_bonus": (Form("accelerator", _has_few_states_and_layers, "accelerator:dilated_bonus", _LAUNCHES),),
    "renew_epoch": (
        Form(
            "cpu",
            lambda sizes: True,
            "opaque_loops:renew_epoch",
            "epochs are rare: 0.33 of the time at 5 x 5 x 3",
        ),
    ),
    "policy_value": (Form("accelerator", _has_few_states, "accelerator:policy_value", _LAUNCHES),),
    "root_value": (
        Form("cpu", _fills_vectors, "numba", _REGISTERS),
        Form("accelerator", _has_few_states, "accelerator:root_value", _LAUNCHES),
    ),
    "truncated_evaluation": (
        Form("cpu", _fills_vectors, "numba", _REGISTERS),
        Form("accelerator", _has_few_states, "accelerator:truncated_evaluation", _LAUNCHES),
    ),
    "optimistic_evaluation": (
        Form("cpu", _fills_vectors, "numba", _REGISTERS),
        Form("accelerator", _has_few_states, "accelerator:optimistic_evaluation", _LAUNCHES),
    ),
    "sample_path": (
        Form("cpu", _fills_vectors, "numba", _REGISTERS),
        Form("accelerator", _has_few_states, "accelerator:sample_path", _LAUNCHES),
    ),
    "count_episode": (Form("cpu", _fills_vectors, "numba", _REGISTERS),),
    "visited_rows": (Form("cpu", _fills_vectors, "numba", _REGISTERS),),
}


class Kernel(Generic[P, R]):
    """A kernel. A call runs the form chosen by the table, compiled, and materialises its results."""

    def __init__(self, paper: Callable[P, R], sizes: str, axes: int) -> None:
        self.paper = paper  # the paper's form, in pure JAX
        self._signature = inspect.signature(paper)
        self._position = list(self._signature.parameters).index(sizes)
        self._axes = axes
        functools.update_wrapper(self, paper)

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        """The results of the chosen form."""
        if named:
            arguments = self._signature.bind(*arguments, **named).args  # pyright: ignore[reportAssignmentType]
        form = _materialised(self.form(*arguments))
        traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(arguments))
        return (form if traced else _compiled(form))(*arguments)

    def form(self, *arguments: Any) -> Callable[..., Any]:
        """The form for these arguments in the current contexts of `target`."""
        if only_paper_forms():
            return self.paper
        target, shape = "accelerator" if for_accelerator() else "cpu", jnp.shape(arguments[self._position])
        floats = [leaf for leaf in jax.tree.leaves(arguments) if jnp.issubdtype(jnp.result_type(leaf), jnp.floating)]
        layers, states, actions = shape[:3]
        sizes = Sizes(layers, states, actions, shape[self._axes :], jnp.result_type(*floats) if floats else None)
        for form in TABLE.get(self.paper.__name__, ()):
            if form.target == target and form.fits(sizes):
                function = _load(form, self.paper, arguments)
                if function is not None:
                    return function
        return self.paper


def jit(*static: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """`jax.jit` that keeps the signature for type checkers; `static` names the static arguments."""
    return lambda function: cast("Callable[P, R]", jax.jit(function, static_argnames=static))


def kernel(sizes: str, axes: int = 3) -> Callable[[Callable[P, R]], Kernel[P, R]]:
    """Declare a function as a kernel.

    `sizes` names an argument with `axes` problem axes, beginning with [L,S,A], followed by batch axes.
    """
    return lambda paper: Kernel(paper, sizes, axes)


def _load(form: Form, paper: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[..., Any] | None:
    if form.where == "numba":
        from cpdpo_jax.kernels.machines import numba_form

        return numba_form.find(paper, arguments)
    module, function = form.where.split(":")
    return getattr(importlib.import_module(f"cpdpo_jax.kernels.machines.{module}"), function)


@functools.cache
def _materialised(form: Callable[..., Any]) -> Callable[..., Any]:
    """The form with materialised results; on accelerators only for `MATERIALISED_ON_ACCELERATOR`."""

    @functools.wraps(form)
    def materialised(*arguments: Any) -> Any:
        results = form(*arguments)
        return (
            results if for_accelerator() and form.__name__ not in MATERIALISED_ON_ACCELERATOR else materialise(results)
        )

    return materialised


_compiled = functools.cache(jax.jit)
