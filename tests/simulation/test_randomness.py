"""The uniforms: known answers, and a rollout that follows its distribution."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.exact.optimum import evaluate
from cpdpo_jax.kernels.machines.target import tracing_for
from cpdpo_jax.simulation import host_loop
from cpdpo_jax.simulation.randomness import init_key, lane_keys, threefry2x32, uniforms, update_key
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


def test_init_update_and_environment_have_streams_of_their_own():
    """On the device and on the host, in every episode."""
    keys = lane_keys(3, np.zeros(4, int), np.arange(4))
    for episode in (0, 1, 2**31 - 1):
        device = [np.asarray(derive(jnp.asarray(keys), episode)) for derive in (init_key, update_key)]
        columns: list[Any] = list(keys.T)  # on the host, keys are NumPy arrays
        host = [np.stack([derive(key, episode) for key in columns], 1) for derive in (init_key, update_key)]
        np.testing.assert_array_equal(device, host)
        drawn = np.concatenate([*device, keys], axis=1)
        assert len({tuple(column) for column in drawn.T}) == 12
        words = [threefry2x32((jnp.asarray(keys[0]), jnp.asarray(keys[1])), (jnp.uint32(episode), jnp.uint32(i)))
                 for i in range(64)]  # fmt: skip
        environment = {(int(a), int(b)) for pair in words for a, b in zip(*map(np.asarray, pair), strict=True)}
        assert not environment & {(int(a), int(b)) for streams in device for a, b in streams.T}
    first, second = (np.asarray(update_key(jnp.asarray(keys), t)) for t in (0, 1))
    assert (first != second).any()


def test_the_streams_of_learners_do_not_change_between_versions():
    """Words of Threefry-2x32 at the counters (episode, 2^32 - 1) for updates and (episode, 2^32 - 2) for `init`."""
    keys = lane_keys(3, np.array([2]), np.array([7]))
    for derive, word in ((update_key, 0xFFFFFFFF), (init_key, 0xFFFFFFFE)):
        expected = threefry2x32((jnp.asarray(keys[0]), jnp.asarray(keys[1])), (jnp.uint32(5), jnp.uint32(word)))
        np.testing.assert_array_equal(derive(jnp.asarray(keys), 5), np.stack(expected))
    assert keys.ravel().tolist() == [466924345, 2302254974]


def edge_of(n_states: int, draw: float) -> list[tuple[list[int], list[int]]]:
    """States and actions when all uniforms are `draw` and first and last entries have probability 0, in every form."""
    transition = np.zeros((1, n_states, 4, n_states))
    transition[..., 1 : n_states - 1] = 1 / (n_states - 2)
    payoff = np.zeros((2, n_states, 4))
    mask = np.ones((2, n_states, 4), bool)
    mask[0, 1:] = False
    cmdp = cp.make_cmdp(transition * mask[:1, :, :, None], payoff, payoff[None], [1.0], action_mask=mask)
    policy = mask * np.array([0.0, 0.5, 0.5, 0.0])
    model, draws = make_model(cmdp, None, np.float32), np.full((2, 4, 16), draw, np.float32)
    spread = jnp.broadcast_to(jnp.asarray(policy, jnp.float32)[..., None], (2, n_states, 4, 16))
    found = []
    for platform in ("cpu", "gpu"):
        with tracing_for(platform):
            trajectory = jax.jit(lambda *a: rollout(*a, "bernoulli"))(model, spread, jnp.asarray(draws))  # pyright: ignore[reportCallIssue]
        assert (np.ptp(trajectory.state, axis=1) == 0).all()
        found.append((np.asarray(trajectory.state)[:, 0].tolist(), np.asarray(trajectory.action)[:, 0].tolist()))
    alone = jax.tree.map(lambda leaf: np.asarray(leaf)[..., 0], model)
    trajectory = host_loop.rollout(alone, policy, draws[..., 0].astype(float), "bernoulli")
    return [*found, (np.asarray(trajectory.state).tolist(), np.asarray(trajectory.action).tolist())]


@pytest.mark.parametrize("n_states", [4, 10, 20])  # written out, by numba or in loops, and wide
@pytest.mark.parametrize("draw", [0.0, 1 - 2.0**-24, 0.5])
def test_what_has_probability_0_is_not_drawn_at_the_edges(n_states, draw):
    """u = 0 skips a first entry of probability 0, the largest u does not reach a last one; 1/2 is the second's."""
    state, action = {0.0: (1, 1), 0.5: (1 + (n_states - 2) // 2, 2)}.get(draw, (n_states - 2, 2))
    assert edge_of(n_states, draw) == [([0, state], [action, action])] * 3
