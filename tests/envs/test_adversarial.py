"""Adversarial losses: in range, lazy and traceable, and the best fixed policy against all policies of a tiny MDP."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.envs import best_fixed_policy, drifting, fixed_policy_regret, periodic, switching
from cpdpo_jax.exact.lp import evaluate

pytestmark = pytest.mark.strict_ranks
MAKERS = {"switching": switching, "drifting": drifting, "periodic": periodic}


def tiny() -> cp.CMDP:
    return cp.envs.make("random", layers=3, states=2, actions=2, binding=False, key=4)


def all_policies(cmdp):
    pairs = np.argwhere(cmdp.state_mask)
    for choice in itertools.product(range(cmdp.n_actions), repeat=len(pairs)):
        policy = np.zeros(cmdp.reward.shape)
        for (k, x), a in zip(pairs, choice, strict=True):
            policy[k, x, a] = 1.0
        yield policy


@pytest.mark.parametrize("name", MAKERS)
def test_losses_lie_in_the_unit_interval_and_their_mean_is_exact(name):
    cmdp = cp.envs.make("inventory")
    losses = MAKERS[name](cmdp, episodes=37)
    table = np.stack([losses(t) for t in range(37)])
    assert table.min() >= 0
    assert table.max() <= 1
    assert (table[:, ~cmdp.action_mask] == 0).all()
    np.testing.assert_allclose(losses.mean(), table.mean(axis=0), atol=1e-12)
    assert np.abs(table[0] - table[-1]).max() > 0.1


@pytest.mark.parametrize("name", MAKERS)
def test_best_fixed_policy_beats_every_policy_played_throughout(name):
    cmdp = tiny()
    losses = MAKERS[name](cmdp, episodes=23, key=1)
    table = np.stack([losses(t) for t in range(23)])
    totals = [evaluate(cmdp.transition, policy, table).sum() for policy in all_policies(cmdp)]
    best = best_fixed_policy(cmdp, losses)
    assert len(totals) == 32
    assert best.value == pytest.approx(min(totals) / 23)
    assert evaluate(cmdp.transition, best.policy, table).sum() == pytest.approx(min(totals))


def test_regret_is_none_for_the_best_and_negative_for_one_that_follows():
    cmdp = tiny()
    losses = switching(cmdp, episodes=40, switches=1)
    best = best_fixed_policy(cmdp, losses).policy
    np.testing.assert_allclose(fixed_policy_regret(cmdp, losses, [best] * 40), 0, atol=1e-12)
    uniform = cmdp.action_mask / np.maximum(1, cmdp.action_mask.sum(axis=2, keepdims=True))
    assert fixed_policy_regret(cmdp, losses, [uniform] * 40)[-1] > 0
    halves = [min(all_policies(cmdp), key=lambda p, t=t: evaluate(cmdp.transition, p, losses(t)[None])[0]) for t in (0, 39)]  # fmt: skip  # noqa: E501
    assert fixed_policy_regret(cmdp, losses, [halves[0]] * 20 + [halves[1]] * 20)[-1] < 0
    with pytest.raises(ValueError, match="41 entries"):
        fixed_policy_regret(cmdp, losses, [best] * 41)


def test_switching_switches_as_often_as_asked():
    losses = switching(tiny(), episodes=100, switches=9)
    jumps = [t for t in range(1, 100) if np.abs(losses(t) - losses(t - 1)).max() > 0]
    assert jumps == list(range(10, 100, 10))


@pytest.mark.parametrize("name", MAKERS)
def test_a_jitted_loop_can_ask_for_an_episode(name):
    losses = MAKERS[name](tiny(), episodes=50)
    traced = jax.jit(losses)
    for t in (0, 7, 49):
        np.testing.assert_allclose(traced(jnp.int32(t)), losses(t), atol=2e-6)  # float32


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="episodes = 0"):
        drifting(tiny(), episodes=0)
    with pytest.raises(ValueError, match="switches = 5; give a whole number from 0 to 4"):
        switching(tiny(), episodes=5, switches=5)
    with pytest.raises(ValueError, match=r"period = 0\.5"):
        periodic(tiny(), episodes=5, period=0.5)
    with pytest.raises(ValueError, match="batch of shape"):
        drifting(cp.stack([tiny(), tiny()]), episodes=5)
