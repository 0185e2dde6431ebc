"""The uniforms: known answers, and a rollout that follows its distribution."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cpdpo_jax.exact.optimum import evaluate
from cpdpo_jax.simulation.randomness import lane_keys, threefry2x32, uniforms
from cpdpo_jax.simulation.rollout import make_model, rollout
from tests.support import random_cmdp


@pytest.mark.strict_ranks
@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [  # the known-answer vectors of Random123 for Threefry-2x32, 20 rounds
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_the_published_words(key, counter, expected):
    words = threefry2x32(tuple(jnp.uint32(k) for k in key), tuple(jnp.uint32(c) for c in counter))
    assert tuple(int(word) for word in words) == expected


@pytest.mark.strict_ranks
def test_draws_depend_on_key_instance_seed_and_episode_alone():
    keys = lane_keys(5, np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]))
    assert len({tuple(column) for column in keys.T}) == 4
    together = uniforms(jnp.asarray(keys), jnp.uint32(3), (4, 5))
    for lane in range(4):
        alone = uniforms(jnp.asarray(keys[:, [lane]]), jnp.uint32(3), (4, 5))
        np.testing.assert_array_equal(alone[..., 0], together[..., lane])
    assert not np.array_equal(together, uniforms(jnp.asarray(keys), jnp.uint32(4), (4, 5)))
    assert not np.array_equal(keys, lane_keys(6, np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])))


@pytest.mark.strict_ranks
def test_uniforms_are_uniform():
    """Mean and second moment of n = 10^6: five standard deviations are 5 sqrt(1/12/n) and 5 sqrt(4/45/n)."""
    keys = jnp.asarray(lane_keys(0, np.zeros(10**4, int), np.arange(10**4)))
    draws = np.asarray(uniforms(keys, jnp.uint32(0), (100,)))
    assert draws.min() >= 0
    assert draws.max() < 1
    assert draws.mean() == pytest.approx(0.5, abs=5 * (1 / 12 / draws.size) ** 0.5)
    assert (draws.astype(float) ** 2).mean() == pytest.approx(1 / 3, abs=5 * (4 / 45 / draws.size) ** 0.5)


@pytest.mark.parametrize("noise", ["bernoulli", "deterministic", "beta"])
def test_rollouts_follow_the_model(noise):
    """The mean return and costs of 20,000 episodes lie within 5 standard errors of the exact values; padding is
    never visited. Samples stay within [0, 1].
    """
    cmdp = random_cmdp(4, 3, 3, 2, seed=3, masked=True, noise=noise, concentration=2.0)
    rng = np.random.default_rng(0)
    policy = rng.random((4, 3, 3)) * cmdp.action_mask
    policy /= np.maximum(policy.sum(axis=2, keepdims=True), 1e-9)
    n = 20_000
    keys = jnp.asarray(lane_keys(1, np.zeros(n, int), np.arange(n)))
    draws = uniforms(keys, jnp.uint32(0), (4, 5))
    spread = jnp.broadcast_to(jnp.asarray(policy, jnp.float32)[..., None], (4, 3, 3, n))
    trajectory = jax.jit(rollout, static_argnums=3)(make_model(cmdp, None, np.float32), spread, draws, noise)
    state, action = np.asarray(trajectory.state), np.asarray(trajectory.action)
    assert cmdp.action_mask[np.arange(4)[:, None], state, action].all()
    payoffs = np.concatenate([np.asarray(trajectory.reward)[None], np.asarray(trajectory.cost)])
    assert payoffs.min() >= 0
    assert payoffs.max() <= 1
    returns = payoffs.sum(axis=1)
    exact = evaluate(cmdp.transition, policy, np.concatenate([cmdp.reward[None], cmdp.cost]))
    error = returns.std(axis=1) / n**0.5
    assert (np.abs(returns.mean(axis=1) - exact) < 5 * error).all()
