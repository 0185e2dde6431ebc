"""The plain recursions of `exact.lp`: a case by hand, against each other, and against episodes that are played."""

from __future__ import annotations

import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.exact.lp import evaluate, occupancy


def test_occupancy_by_hand():
    """x_0 plays its two actions with 1/4 and 3/4; the first goes to state 0, the second to either with 1/2.

    State 0 is reached with 1/4 + 3/8 = 5/8, state 1 with 3/8; they play action 0 with 1/5 and 1/3.
    """
    transition = np.zeros((1, 2, 2, 2))
    transition[0, 0] = [[1, 0], [0.5, 0.5]]
    policy = np.array([[[1 / 4, 3 / 4], [0, 0]], [[1 / 5, 4 / 5], [1 / 3, 2 / 3]]])
    expected = [[[1 / 4, 3 / 4], [0, 0]], [[1 / 8, 1 / 2], [1 / 8, 1 / 4]]]
    np.testing.assert_allclose(occupancy(transition, policy), expected, rtol=1e-15)


def test_occupancy_of_one_layer_is_the_policy_of_the_first_state():
    policy = np.array([[[0.3, 0.7], [0.5, 0.5]]])
    np.testing.assert_array_equal(occupancy(np.zeros((0, 2, 2, 2)), policy), [[[0.3, 0.7], [0, 0]]])


@pytest.mark.parametrize("name", ["inventory", "grid_three_constraints"])
def test_occupancy_gives_values(name):
    """V(v) = sum_{x,a} q(x,a) v(x,a): forwards and backwards agree, and a layer is visited once."""
    cmdp = cp.envs.make(name)
    policy = cp.solve(cmdp).policy
    q = occupancy(cmdp.transition, policy)
    np.testing.assert_allclose(q.sum(axis=(1, 2)), 1)
    payoffs = np.concatenate([cmdp.reward[None], cmdp.cost])
    np.testing.assert_allclose((q * payoffs).sum(axis=(1, 2, 3)), evaluate(cmdp.transition, policy, payoffs))


def test_occupancy_is_how_often_episodes_come():
    """20,000 played episodes: each of the 30 frequencies within 5 standard errors, at most 5 sqrt(1/4/n)."""
    rng, n = np.random.default_rng(4), 20_000
    transition = rng.dirichlet(np.ones(3), size=(4, 3, 2))
    policy = rng.dirichlet(np.ones(2), size=(5, 3))
    seen, state = np.zeros((5, 3, 2)), np.zeros(n, int)
    for k in range(5):
        action = (rng.random(n) > policy[k, state, 0]).astype(int)
        np.add.at(seen[k], (state, action), 1 / n)
        if k < 4:
            state = (rng.random(n)[:, None] > transition[k, state, action].cumsum(axis=1)[:, :2]).sum(axis=1)
    assert np.abs(seen - occupancy(transition, policy)).max() < 5 * (0.25 / n) ** 0.5
