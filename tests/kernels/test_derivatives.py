"""Every kernel is differentiable at any width, even where a CPU runs machine code, which has no derivative rule."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cpdpo_jax import kernels

widths = pytest.mark.parametrize(  # 12: numba's kernels on a CPU
    "n_states", [3, pytest.param(12, marks=pytest.mark.exhaustive)]
)


def problem(n_states: int) -> dict[str, np.ndarray]:
    """A policy, a confidence set around a random P, a bonus and a dilation; one lane, no batch axis."""
    rng = np.random.default_rng(3)
    p = rng.dirichlet(np.ones(n_states), (2, n_states, 2))
    return {
        "policy": rng.dirichlet(np.ones(2), (3, n_states)),
        "lower": p * 0.7,
        "upper": np.minimum(p * 1.2 + 0.05, 1),
        "bonus": rng.random((3, n_states)),
        "dilation": np.array(1.3),
    }


def bounds(policy: Any, lower: Any, upper: Any, bonus: Any, dilation: Any) -> jax.Array:
    low, up = kernels.occupancy_bounds(policy, lower, upper)
    weight = jnp.asarray(np.random.default_rng(4).random(low.shape))
    return (weight * (up - 0.3 * low)).sum()


def dilated(policy: Any, lower: Any, upper: Any, bonus: Any, dilation: Any) -> jax.Array:
    values = kernels.dilated_bonus(policy, bonus, lower, upper, dilation)
    return (jnp.asarray(np.random.default_rng(4).random(values.shape)) * values).sum()


@widths
@pytest.mark.parametrize("kernel", [bounds, dilated])
def test_gradients_equal_finite_differences(x64: None, kernel: Any, n_states: int) -> None:
    """Central differences in a random direction: piecewise linear in each argument, so the error is of order h^2."""
    given = problem(n_states)
    slopes = jax.jit(jax.grad(lambda arrays: kernel(**arrays)))(given)
    assert all(np.isfinite(slope).all() for slope in slopes.values())
    rng, step = np.random.default_rng(5), 1e-6
    for name, array in given.items():
        direction = rng.standard_normal(array.shape)
        ahead, behind = (kernel(**(given | {name: array + sign * step * direction})) for sign in (1, -1))
        expected = float(ahead - behind) / (2 * step)
        assert float((slopes[name] * direction).sum()) == pytest.approx(expected, rel=1e-5, abs=1e-7), name


@pytest.mark.exhaustive
def test_derivatives_can_be_mapped(x64: None) -> None:
    """vmap of grad equals grad one by one, at the width of the machine code."""
    given = problem(9)
    policies = np.stack([given["policy"], given["policy"][:, ::-1]])
    slope = jax.grad(lambda policy: dilated(**(given | {"policy": policy})))
    alone, mapped = (jax.jit(function) for function in (slope, jax.vmap(slope)))
    np.testing.assert_allclose(mapped(policies), [alone(policy) for policy in policies], rtol=1e-9)
