"""Accelerator forms, run on a CPU, against plain loops and the CPU forms."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cpdpo_jax import kernels
from cpdpo_jax.kernels.machines.target import tracing_for
from tests.kernels.support import TOLERANCE, random_problems
from tests.reference import kernels_numpy as reference


def problems(shape, lanes, seed=4):
    rng = np.random.default_rng(seed)
    layers, states, actions = shape
    policy, transition, lower, upper, _, mask = random_problems(rng, layers, states, actions, lanes)
    return policy, transition, lower, upper, mask, rng.random((3, *policy.shape)), rng.random((*shape[:2], lanes))


def single(*arrays):
    return [jnp.asarray(array, jnp.float32) for array in arrays]


@pytest.mark.parametrize("shape", [(3, 3, 2), (2, 4, 2), (1, 2, 2)])
def test_recursions_equal_the_plain_loops(shape):
    policy, transition, lower, upper, _, payoff, bonus = problems(shape, lanes=3)
    arrays = single(policy, transition, lower, upper, payoff, bonus)
    with tracing_for("gpu"):
        pi, p, low, up, v, b = arrays
        found = [
            kernels.policy_value(p, pi, v),
            *kernels.occupancy_bounds(pi, low, up),
            kernels.dilated_bonus(pi, b, low, up, jnp.float32(4 / 3)),
        ]
    solver = reference.extremes_vertices
    for lane in range(3):
        lane_arrays = [array[..., lane] for array in (policy, transition, lower, upper, payoff, bonus)]
        pi, p, low, up, v, b = lane_arrays
        batched = pi[..., None], low[..., None], up[..., None]
        expected = [
            reference.policy_value(p, pi, v),
            *(bound[..., 0] for bound in reference.occupancy_bounds(*batched, solver)),
            reference.dilated_bonus(pi, b, low, up, 4 / 3, solver=solver),
        ]
        for ours, theirs in zip(found, expected, strict=True):
            meant = np.isfinite(theirs)  # pairs that are padding have no dilated bonus
            np.testing.assert_allclose(
                np.where(meant, ours[..., lane], theirs), theirs, rtol=TOLERANCE["float32"], atol=TOLERANCE["float32"]
            )


@pytest.mark.parametrize("shape", [(5, 5, 3), (4, 10, 2), (3, 16, 2)])
@pytest.mark.parametrize("shared", [False, True])
def test_wide_layers_equal_the_forms_of_a_cpu(shape, shared):
    """Sizes beyond vertex enumeration: equal to the CPU forms. shared: one model for all lanes."""
    policy, transition, lower, upper, mask, payoff, bonus = problems(shape, lanes=4)
    pi, p, low, up, v, b = single(policy, transition, lower, upper, payoff, bonus)
    p, v = (p[..., :1], v[..., :1]) if shared else (p, v)

    def found():
        dilated = jnp.where(mask, kernels.dilated_bonus(pi, b, low, up, jnp.float32(1.2)), 0)
        return kernels.policy_value(p, pi, v), *kernels.occupancy_bounds(pi, low, up), dilated

    expected = found()
    with tracing_for("gpu"):
        ours = found()
    for actual, other in zip(ours, expected, strict=True):
        np.testing.assert_allclose(actual, other, rtol=2e-5, atol=2e-6)
    assert float(jnp.abs(ours[2] - ours[1]).max()) > 0.1


def test_without_a_batch_axis():
    policy, transition, _, _, _, payoff, _ = (array[..., 0] for array in problems((3, 3, 2), lanes=1))
    with tracing_for("gpu"):
        found = jax.jit(kernels.policy_value)(*single(transition, policy, payoff))
    np.testing.assert_allclose(found, reference.policy_value(transition, policy, payoff), rtol=1e-5)
