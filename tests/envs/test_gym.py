"""The Gymnasium door: check_env, and a rollout of the LP policy against `solve`."""

import warnings

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import cpdpo_jax as cp
from cpdpo_jax.exact.lp import evaluate


@pytest.mark.parametrize("observation", ["index", "tuple"])
@pytest.mark.parametrize("name", ["factored", "inventory", "media_streaming", "grid_three_constraints"])
def test_check_env_passes_with_warnings_as_errors(name, observation):
    env = cp.to_gymnasium(cp.envs.make(name), observation=observation)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env, skip_render_check=True)


@pytest.mark.parametrize(("name", "noise"), [("inventory", "bernoulli"), ("simple", "beta"), ("hard", "deterministic")])
def test_a_rollout_of_the_optimum_agrees_with_solve(name, noise):
    cmdp = cp.envs.make(name, noise=noise)
    solution = cp.solve(cmdp)
    env = cp.to_gymnasium(cmdp, observation="tuple")
    rng, episodes = np.random.default_rng(0), 2000
    sums = np.zeros((episodes, 1 + cmdp.n_constraints))
    env.reset(seed=7)
    for total in sums:
        (k, x), info = env.reset()
        over = False
        while not over:
            action = rng.choice(cmdp.n_actions, p=solution.policy[k, x])
            assert info["action_mask"][action] == 1
            (k, x), reward, over, truncated, info = env.step(action)
            assert not truncated
            total += np.append(reward, info["cost"])
    exact = np.append(solution.value, evaluate(cmdp.transition, solution.policy, cmdp.cost))
    error = sums.std(axis=0, ddof=1) / np.sqrt(episodes)
    z = np.abs(sums.mean(axis=0) - exact) / np.maximum(error, 1e-9)
    print(f"\n{name}, {noise}: mean {sums.mean(axis=0)}, exact {exact}, distance in standard errors {z}")
    assert (z < 4).all()  # 6 comparisons: a false alarm has probability 4e-4 over the seed, which is fixed


def test_an_episode_is_l_steps_and_ends_in_x_l():
    cmdp = cp.envs.make("cliff")
    env = cp.to_gymnasium(cmdp)
    observation, info = env.reset(seed=0)
    assert observation == 0
    np.testing.assert_array_equal(info["cost"], [0.0])
    np.testing.assert_array_equal(info["threshold"], cmdp.threshold)
    for k in range(cmdp.n_layers):
        observation, _, over, _, info = env.step(0)
        assert info["cost"].shape == (1,)
        assert over == (k + 1 == cmdp.n_layers)
    assert observation == cmdp.n_layers * cmdp.n_states
    assert not info["action_mask"].any()
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(0)


def test_an_action_that_is_not_allowed_is_replaced_and_said_so():
    cmdp = cp.envs.make("simple")  # x_0 draws the start, with one action
    env = cp.to_gymnasium(cmdp)
    _, info = env.reset(seed=0)
    np.testing.assert_array_equal(info["action_mask"], [1, 0])
    *_, info = env.step(1)
    assert info["replaced"]
    with pytest.raises(ValueError, match="action = 2; give a whole number from 0 to 1"):
        env.step(2)


def test_a_seed_repeats_the_episode():
    env = cp.to_gymnasium(cp.envs.make("media_streaming"))
    runs = []
    for _ in range(2):
        env.reset(seed=3)
        runs.append([env.step(0)[:2] for _ in range(10)])
    assert runs[0] == runs[1]


def test_bad_arguments_are_named():
    single = cp.envs.make("factored")
    with pytest.raises(ValueError, match="batch of shape"):
        cp.to_gymnasium(cp.stack([single, single]))
    with pytest.raises(ValueError, match="observation = 'pixels'; choose one of index, tuple"):
        cp.to_gymnasium(single, observation="pixels")
    with pytest.raises(ValueError, match="cmdp is a str"):
        cp.to_gymnasium("factored")  # pyright: ignore[reportArgumentType]
