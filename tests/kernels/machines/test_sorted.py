"""numba's kernels for wide layers against the pure JAX forms (which have their own oracles), and edge cases."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cpdpo_jax.kernels import occupancy_bounds, paper_forms
from tests.reference import kernels_numpy as reference

SHAPES = [(1, 11, 2), (2, 11, 1), (3, 16, 2), (4, 17, 3), (3, 33, 2)]  # L, S, A: below, at and above whole vectors
KINDS = ("narrow", "wide", "vacuous", "point", "ties")
TOLERANCE = {"float32": 3e-6, "float64": 1e-12}


def sets(kind: str, n_layers: int, n_states: int, n_actions: int, *batch: int):
    """(policy, lower, upper), float64; two states of every layer but the first are padding."""
    rng = np.random.default_rng([n_layers, n_states, n_actions, KINDS.index(kind)])
    policy = np.moveaxis(rng.dirichlet(np.ones(n_actions), (n_layers, n_states, *batch)), -1, 2)
    real = np.arange(n_states) < n_states - 2
    p = rng.dirichlet(np.ones(n_states), (n_layers - 1, n_states, n_actions, *batch)) * real
    if kind == "ties":
        p = np.broadcast_to(real / real.sum(), p.shape).copy()
    p = np.moveaxis(p / p.sum(axis=-1, keepdims=True), -1, 3)
    real = real.reshape((-1,) + (1,) * len(batch))
    width = {"narrow": 0.01, "wide": 0.3, "vacuous": 1.0, "point": 0.0, "ties": 0.1}[kind]
    return policy, np.maximum(p - width, 0) * real, np.minimum(p + width, 1) * real


def both(kernel, *arrays):
    """The results of numba's form and of the paper's."""
    numba = kernel(*arrays)
    assert "ffi_call" in str(jax.make_jaxpr(kernel)(*arrays))
    with paper_forms():
        assert "ffi_call" not in str(jax.make_jaxpr(kernel)(*arrays))
        return numba, kernel(*arrays)


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_agrees_with_pure_jax(shape, kind, dtype):
    with jax.enable_x64(dtype == "float64"):
        policy, lower, upper = (jnp.asarray(x, dtype) for x in sets(kind, *shape, 11))
        for numba, paper in zip(*both(occupancy_bounds, policy, lower, upper), strict=True):
            np.testing.assert_allclose(numba, paper, atol=TOLERANCE[dtype], rtol=0)


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.exhaustive)])
def test_agrees_with_linear_programs(dtype):
    """Every inner problem is solved by an LP."""
    policy, lower, upper = sets("wide", 3, 11, 2, 2)
    with jax.enable_x64(dtype == "float64"):
        bounds = occupancy_bounds(*(jnp.asarray(array, dtype) for array in (policy, lower, upper)))
    expected = reference.occupancy_bounds(policy, lower, upper, reference.extremes_lp)
    np.testing.assert_allclose(bounds, expected, rtol=0, atol={"float32": 3e-6, "float64": 1e-9}[dtype])


def test_a_lane_does_not_depend_on_its_neighbours():
    arrays = [jnp.asarray(x, jnp.float32) for x in sets("wide", 3, 12, 2, 37)]
    whole = occupancy_bounds(*arrays)
    for b in (0, 7, 8, 36):
        alone = occupancy_bounds(*(x[..., b : b + 1] for x in arrays))
        for single, batched in zip(alone, whole, strict=True):
            np.testing.assert_array_equal(single[..., 0], batched[..., b])


@pytest.mark.parametrize("other", ["policy", "lower", "upper", None])
def test_lanes_repeated_at_the_end_are_as_good_as_their_first(other):
    """Padding lanes are copied; a lane that differs in a single number is computed."""
    policy, lower, upper = sets("wide", 3, 11, 2, 20)
    named = {"policy": policy, "lower": lower, "upper": upper}
    for array in named.values():
        array[..., 12:] = array[..., 11:12]
    if other is not None:
        lane = named[other][1, ..., 15:16]  # a layer in which everything counts
        lane[np.unravel_index(lane.argmax(), lane.shape)] *= 0.875
    arrays = {name: jnp.asarray(array, jnp.float32) for name, array in named.items()}

    whole = occupancy_bounds(**arrays)
    for b in range(20):
        alone = occupancy_bounds(**{name: array[..., b : b + 1] for name, array in arrays.items()})
        for single, batched in zip(alone, whole, strict=True):
            np.testing.assert_array_equal(single[..., 0], batched[..., b])
    if other is not None:
        assert any((x[..., 15] != x[..., 16]).any() for x in whole)


def test_a_lane_that_is_not_finite_harms_no_other():
    arrays = [jnp.asarray(x, jnp.float32) for x in sets("wide", 3, 11, 2, 4)]
    clean = occupancy_bounds(*arrays)
    for bad in ([3], [1, 2, 3], [0]):
        policy = arrays[0].at[..., jnp.array(bad)].set(jnp.nan)
        for single, batched in zip(occupancy_bounds(policy, *arrays[1:]), clean, strict=True):
            good = [b for b in range(4) if b not in bad]
            np.testing.assert_array_equal(single[..., good], batched[..., good])


def test_trailing_axes_broadcast_and_vmap():
    policy, lower, upper = (jnp.asarray(x, jnp.float32) for x in sets("wide", 3, 11, 2, 2, 3))
    low, up = occupancy_bounds(policy, lower[..., :1, :1], upper[..., :1, :1])
    assert low.shape == (3, 11, 2, 3)
    mapped = jax.vmap(occupancy_bounds, in_axes=-1, out_axes=-1)(policy[..., 0, :], lower[..., 0, :], upper[..., 0, :])
    direct = occupancy_bounds(policy[..., 0, :], lower[..., 0, :], upper[..., 0, :])
    for a, b in zip(mapped, direct, strict=True):  # the paper's form and numba's
        np.testing.assert_allclose(a, b, atol=TOLERANCE["float32"])
    assert ((low >= 0) & (low <= up) & (up <= 1)).all()


@pytest.mark.parametrize(
    ("size", "lanes", "is_numba"),
    [
        ((3, 9, 2), (4,), False),  # few terms: unrolled
        ((10, 10, 4), (4,), False),
        ((30, 8, 4), (4,), False),
        ((30, 9, 2), (4,), True),
        ((3, 11, 2), (4,), True),
        ((3, 11, 2), (), False),
        ((3, 11, 2), (2, 2), False),
    ],
)
def test_numba_takes_wide_layers_and_long_episodes_with_one_batch_axis(size, lanes, is_numba):
    arrays = (jnp.asarray(x, jnp.float32) for x in sets("wide", *size, *lanes))
    assert ("ffi_call" in str(jax.make_jaxpr(occupancy_bounds)(*arrays))) == is_numba
