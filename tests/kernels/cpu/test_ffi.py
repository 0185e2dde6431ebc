"""The compiled kernels of wide layers against their pure JAX forms (which have their own oracles), and their edges."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cpdpo_jax.kernels import bonus as bonus_kernel
from cpdpo_jax.kernels import cpu_acceleration, dilated_bonus, dilated_bonus_in_box, make_box, occupancy_bounds
from cpdpo_jax.kernels.loops import written_out
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
    """The compiled form's answer, and the pure one's."""
    here = kernel(*arrays)
    assert "ffi_call" in str(jax.make_jaxpr(kernel)(*arrays))
    with cpu_acceleration(False):
        assert "ffi_call" not in str(jax.make_jaxpr(kernel)(*arrays))
        return here, kernel(*arrays)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_agrees_with_pure_jax(shape, kind, dtype):
    with jax.enable_x64(dtype == "float64"):
        policy, lower, upper = (jnp.asarray(x, dtype) for x in sets(kind, *shape, 11))
        for here, there in zip(*both(occupancy_bounds, policy, lower, upper), strict=True):
            np.testing.assert_allclose(here, there, atol=TOLERANCE[dtype], rtol=0)
        bonus = jnp.asarray(np.random.default_rng(0).uniform(0, 1, (*shape[:2], 11)), dtype)
        here, there = both(dilated_bonus, policy, bonus, lower, upper, jnp.asarray(1.2, dtype))
        np.testing.assert_allclose(here, there, rtol=5 * TOLERANCE[dtype])


def test_agrees_with_linear_programs():
    """Float64, every inner problem solved by an LP."""
    policy, lower, upper = sets("wide", 3, 11, 2, 2)
    with jax.enable_x64(True):
        bounds = occupancy_bounds(*map(jnp.asarray, (policy, lower, upper)))
    expected = reference.occupancy_bounds(policy, lower, upper, reference.extremes_lp)
    np.testing.assert_allclose(bounds, expected, atol=1e-9)


def test_a_lane_does_not_depend_on_its_neighbours():
    arrays = [jnp.asarray(x, jnp.float32) for x in sets("wide", 3, 12, 2, 37)]
    whole = occupancy_bounds(*arrays)
    for b in (0, 7, 8, 36):
        alone = occupancy_bounds(*(x[..., b : b + 1] for x in arrays))
        for one, of_all in zip(alone, whole, strict=True):
            np.testing.assert_array_equal(one[..., 0], of_all[..., b])


@pytest.mark.parametrize("other", ["policy", "lower", "upper", "bonus", "dilation", None])
def test_lanes_repeated_at_the_end_are_as_good_as_their_first(other):
    """They are computed once; one that differs in a single number is not one of them."""
    policy, lower, upper = sets("wide", 3, 11, 2, 20)
    bonus, dilation = np.random.default_rng(1).uniform(0.5, 1, (3, 11, 20)), np.full(20, 1.2)
    named = {"policy": policy, "lower": lower, "upper": upper, "bonus": bonus, "dilation": dilation}
    for array in named.values():
        array[..., 12:] = array[..., 11:12]
    if other is not None:
        lane = named[other][..., 15:16]
        lane = lane[1] if lane.ndim > 1 else lane  # a layer in which everything counts
        lane[np.unravel_index(lane.argmax(), lane.shape)] *= 0.875
    arrays = {name: jnp.asarray(array, jnp.float32) for name, array in named.items()}

    def results(some: dict[str, jax.Array]) -> list[jax.Array]:
        bounds = occupancy_bounds(some["policy"], some["lower"], some["upper"])
        parts = (some[name] for name in ("policy", "bonus", "lower", "upper", "dilation"))
        return [*bounds, dilated_bonus(*parts)]

    whole = results(arrays)
    for b in range(20):
        for one, of_all in zip(results({k: x[..., b : b + 1] for k, x in arrays.items()}), whole, strict=True):
            np.testing.assert_array_equal(one[..., 0], of_all[..., b])
    if other is not None:
        assert any((x[..., 15] != x[..., 16]).any() for x in whole)


def test_a_lane_that_is_not_finite_harms_no_other():
    arrays = [jnp.asarray(x, jnp.float32) for x in sets("wide", 3, 11, 2, 4)]
    clean = occupancy_bounds(*arrays)
    for bad in ([3], [1, 2, 3], [0]):
        policy = arrays[0].at[..., jnp.array(bad)].set(jnp.nan)
        for one, of_all in zip(occupancy_bounds(policy, *arrays[1:]), clean, strict=True):
            good = [b for b in range(4) if b not in bad]
            np.testing.assert_array_equal(one[..., good], of_all[..., good])


def test_trailing_axes_broadcast_and_vmap():
    policy, lower, upper = (jnp.asarray(x, jnp.float32) for x in sets("wide", 3, 11, 2, 2, 3))
    low, up = occupancy_bounds(policy, lower[..., :1, :1], upper[..., :1, :1])
    assert low.shape == (3, 11, 2, 3)
    mapped = jax.vmap(occupancy_bounds, in_axes=-1, out_axes=-1)(policy[..., 0, :], lower[..., 0, :], upper[..., 0, :])
    direct = occupancy_bounds(policy[..., 0, :], lower[..., 0, :], upper[..., 0, :])
    for a, b in zip(mapped, direct, strict=True):
        np.testing.assert_array_equal(a, b)
    assert ((low >= 0) & (low <= up) & (up <= 1)).all()


def test_what_is_differentiated_has_the_whole_box():
    """Layers of 9 and 10 states of long episodes run numba's form, and their derivative is that of the written-out."""
    policy, lower, upper = (jnp.asarray(x, jnp.float32) for x in sets("wide", 3, 9, 2, 4))
    bonus, dilation = jnp.ones((3, 9, 4)), jnp.full(4, 1.2)
    box = make_box(lower, upper)
    pure = bonus_kernel._pure_recursion(policy, bonus, dilation, box.lower, box.spread, box.slack)[0]
    np.testing.assert_allclose(pure, dilated_bonus_in_box(policy, bonus, box, dilation), rtol=1e-5)
    for shape, expected in (((3, 9, 2), True), ((10, 10, 4), True), ((30, 8, 4), True), ((30, 9, 2), False)):
        assert written_out(shape) == expected
