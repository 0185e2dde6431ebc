"""Kernels with zero, one or several batch axes, and mapped over an axis at any position."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cpdpo_jax import kernels
from cpdpo_jax.kernels.lookup import at_index, at_pairs

ROUNDING = {"rtol": 1e-6, "atol": 1e-6}  # absolute too: with one batch axis a wide layer has numba's form
SHAPES = [(4, 3, 2), (3, 11, 2)]  # L, S, A: unrolled, and (on a CPU) compiled by numba


def arguments(shape: tuple[int, int, int], lanes: int = 6) -> dict[str, tuple[Any, tuple[jax.Array, ...]]]:
    """Kernels by name with random arguments, [...,B] each."""
    n_layers, n_states, n_actions = shape
    rng = np.random.default_rng(shape)
    policy = np.moveaxis(rng.dirichlet(np.ones(n_actions), (n_layers, n_states, lanes)), -1, 2)
    transition = np.moveaxis(rng.dirichlet(np.ones(n_states), (n_layers - 1, n_states, n_actions, lanes)), -1, 3)
    payoff = rng.random((2, *policy.shape))
    lower, upper = np.maximum(transition - 0.1, 0), np.minimum(transition + 0.2, 1)
    bonus, dilation = rng.random((n_layers, n_states, lanes)), rng.uniform(1, 2, lanes)
    state = rng.integers(n_states, size=(n_layers, lanes))
    action = rng.integers(n_actions, size=(n_layers, lanes))

    def arrays(*some: np.ndarray) -> tuple[jax.Array, ...]:
        return tuple(jnp.asarray(x, jnp.int32 if x.dtype.kind == "i" else jnp.float32) for x in some)

    return {
        "policy_value": (kernels.policy_value, arrays(transition, policy, payoff)),
        "action_value": (kernels.action_value, arrays(transition, policy, payoff)),
        "occupancy": (kernels.occupancy, arrays(transition, policy)),
        "occupancy_bounds": (kernels.occupancy_bounds, arrays(policy, lower, upper)),
        "dilated_bonus": (kernels.dilated_bonus, arrays(policy, bonus, lower, upper, dilation)),
        "at_pairs": (at_pairs, arrays(state, action, payoff)),
        "at_index": (at_index, arrays(state[0], np.moveaxis(payoff, 2, 0))),
    }


def compiled(kernel: Any) -> Any:
    return jax.jit(kernel)


@cache
def batched(name: str, shape: tuple[int, int, int]) -> Any:
    """The expected results: one batch axis, the last."""
    kernel, arrays = arguments(shape)[name]
    return compiled(kernel)(*arrays)


@pytest.fixture(params=SHAPES, ids=str)
def shape(request: Any) -> tuple[int, int, int]:
    return request.param


@pytest.mark.parametrize("name", list(arguments((2, 2, 2))))
def test_layouts_agree(name: str, shape: tuple[int, int, int]) -> None:
    kernel, arrays = arguments(shape)[name]
    kernel, expected = compiled(kernel), batched(name, shape)
    alone = kernel(*(x[..., 0] for x in arrays))
    chex.assert_trees_all_close(alone, jax.tree.map(lambda x: x[..., 0], expected), **ROUNDING)
    square = kernel(*(x.reshape(*x.shape[:-1], 2, 3) for x in arrays))
    flat = jax.tree.map(lambda x: x.reshape(*x.shape[:-2], 6), square)
    chex.assert_trees_all_close(flat, expected, **ROUNDING)


@pytest.mark.parametrize(
    "place", ["middle", *(pytest.param(place, marks=pytest.mark.exhaustive) for place in ("front", "back"))]
)
@pytest.mark.parametrize("name", list(arguments((2, 2, 2))))
def test_mapped_axes_agree(name: str, place: str, shape: tuple[int, int, int]) -> None:
    """The kernel does not see the mapped axis."""
    kernel, arrays = arguments(shape)[name]
    axes = [{"front": 0, "middle": x.ndim // 2, "back": -1}[place] for x in arrays]
    split = [x.reshape(*x.shape[:-1], 3, 2) for x in arrays]  # lanes of 3, mapped 2
    moved = [jnp.moveaxis(x, -1, axis) for x, axis in zip(split, axes, strict=True)]
    mapped = compiled(jax.vmap(kernel, in_axes=tuple(axes), out_axes=-1))(*moved)
    flat = jax.tree.map(lambda x: x.reshape(*x.shape[:-2], 6), mapped)
    chex.assert_trees_all_close(flat, batched(name, shape), **ROUNDING)


def test_kernels_in_machine_code_are_the_papers_form_when_mapped() -> None:
    kernel, arrays = arguments((3, 11, 2))["occupancy_bounds"]
    assert "ffi_call" in str(jax.make_jaxpr(kernel)(*arrays))
    assert "ffi_call" not in str(jax.make_jaxpr(jax.vmap(kernel, in_axes=-1))(*(x[..., None] for x in arrays)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (dict(payoff=np.ones((2, 3, 4, 2))), "payoff of shape .* has 0 trailing batch axes where 1 are expected"),
        (dict(transition=np.ones((3, 4, 2, 4, 5))), r"transition has shape .* must be \(2, 4, 2, 4\)"),
        (dict(payoff=np.ones((2, 3, 4, 2, 3))), r"do not broadcast: .*payoff \(3,\); make their sizes equal or 1"),
    ],
)
def test_a_wrong_shape_is_named(change: dict[str, Any], said: str) -> None:
    right: dict[str, Any] = dict(
        transition=np.ones((2, 4, 2, 4, 5)), policy=np.ones((3, 4, 2, 5)), payoff=np.ones((2, 3, 4, 2, 5))
    )
    kernels.policy_value(**right)
    with pytest.raises(ValueError, match=said):
        kernels.policy_value(**{**right, **change})


LANES: Any = np.ones((3, 5), np.int32)
ONES: Any = np.ones


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: at_index(LANES[0], ONES((4, 2, 6))), r"do not broadcast: index \(5,\), table \(6,\)"),
        (lambda: at_index(LANES, ONES((4, 5))), "table of shape .* has 1 trailing batch axes where 2 are"),
        (lambda: at_pairs(LANES, LANES[:2], ONES((3, 4, 2, 5))), r"action has shape .* must be \(3\)"),
        (lambda: at_pairs(LANES, LANES, ONES((2, 4, 2, 5))), r"table has shape .* must be \(3, any, any\)"),
        (lambda: at_pairs(LANES, LANES, ONES((3, 4, 2))), "table of shape .* has 0 trailing batch axes"),
        (
            lambda: kernels.extreme_expectation(jnp.zeros((3, 5)), ONES((4, 5)), ONES((4, 5)), maximize=True),
            r"lower has shape \(3, 5\), but its leading axes must be \(4\)",
        ),
        (
            lambda: kernels.extreme_expectation(jnp.zeros((4, 1)), ONES((4, 5)), ONES(4), maximize=True),
            "lower of shape .* has 1 trailing batch axes where 0 are expected",
        ),
    ],
)
def test_a_wrong_shape_of_a_lookup_or_a_row_is_named(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()
