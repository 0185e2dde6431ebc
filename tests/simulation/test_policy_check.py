"""The policy check covers every state, action and layer, whatever the size."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cpdpo_jax.simulation.policy_check import check_final_policy, empty_check, update_check


def found_in(shape: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """One lane per pair of [L,S,A] whose policy is wrong at that pair only: errors of the sum, least probabilities."""
    n_layers, n_states, n_actions = shape
    size = n_layers * n_states * n_actions
    policy = np.full((*shape, size), 1 / n_actions, np.float32)
    wrong_sum, negative = policy.reshape(size, size).copy(), policy.reshape(size, size).copy()
    np.fill_diagonal(wrong_sum, 1 / n_actions + 0.25)
    np.fill_diagonal(negative, -0.5)
    mask = jnp.ones((*shape, size), bool)
    before = empty_check(size, np.float32)
    update = jax.jit(update_check)
    checks = [update(before, wrong.reshape(policy.shape), mask, jnp.int32(7)) for wrong in (wrong_sum, negative)]
    for check in checks:
        np.testing.assert_array_equal(check.first_improper, 7)
    return np.asarray(checks[0].sum_error), np.asarray(checks[1].min_probability)


AT_THE_ENDS = (1, 2, 11, 12, 13, 24, 25, 26, 36, 37)  # of the parts of 12


@pytest.mark.parametrize("size", [
    pytest.param(size, marks=[pytest.mark.exhaustive] * (size not in AT_THE_ENDS)) for size in range(1, 41)
])  # fmt: skip
def test_every_pair_is_checked(size):
    """25 pairs are split into 12, 12 and 1."""
    sum_error, least = found_in((1, size, 1))
    np.testing.assert_allclose(sum_error, 0.25, rtol=1e-5)
    np.testing.assert_allclose(least, -0.5, rtol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1, 25), (25, 1, 1), (2, 3, 4), (3, 7, 2)])
def test_every_pair_of_a_problem_is_checked(shape):
    sum_error, least = found_in(shape)
    np.testing.assert_allclose(sum_error, 0.25, rtol=1e-5)
    np.testing.assert_allclose(least, -0.5, rtol=1e-5)


def test_an_action_that_is_not_allowed_and_a_padded_state():
    """Positive probability at either is an error."""
    mask = np.ones((1, 2, 2, 3), bool)
    mask[0, 1] = False  # padding
    mask[0, 0, 1] = False
    policy = np.zeros((1, 2, 2, 3), np.float32)
    policy[0, 0, 0] = 1
    policy[0, 0, :, 1] = 0.5
    policy[0, 1, 1, 2] = 0.25
    checks = update_check(empty_check(3, np.float32), jnp.asarray(policy), jnp.asarray(mask), jnp.int32(2))
    np.testing.assert_array_equal(checks.first_improper, [-1, 2, 2])
    np.testing.assert_allclose(checks.min_probability, [0, -0.5, -0.25])


def test_every_pair_of_a_final_policy_is_checked():
    """A sum above 1, a negative probability whose state sums to 1, and a positive one where it is not allowed."""
    shape, mask = (3, 2, 2, 2), np.ones((3, 2, 2, 2), bool)
    mask[1, 1, 1], mask[2, 1] = False, False  # an action that is not allowed, a padded state
    proper = mask / np.maximum(mask.sum(axis=2, keepdims=True), 1)
    check_final_policy(proper, mask, "mine")
    for layer, state, action, lane in np.ndindex(*shape):
        for change in ({action: 0.25}, {action: -1.0, 1 - action: 1.0}):
            policy = proper.copy()
            for a, value in change.items():
                policy[layer, state, a, lane] += value
            row = re.escape(str(np.round(policy[layer, state, :, lane], 4).tolist()))
            with pytest.raises(ValueError, match=rf"'mine'.*: {row} in state {state} of layer {layer};"):
                check_final_policy(policy, mask, "mine")
