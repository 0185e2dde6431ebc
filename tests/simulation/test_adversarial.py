"""Playing against losses that change: sums, best fixed policy by LP, both loops, an adversary that remembers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.envs import best_fixed_policy, chasing, drifting, fixed_policy_regret, switching
from cpdpo_jax.exact.lp import evaluate, plan
from cpdpo_jax.learners import base
from cpdpo_jax.learners.base import Learner
from cpdpo_jax.simulation.adversarial import least_loss, play_losses

UNIFORM = base.get("uniform")


def tiny() -> cp.CMDP:
    return cp.envs.make("random", layers=3, states=2, actions=2, binding=False, key=4)


def uniform(cmdp: cp.CMDP) -> np.ndarray:
    return cmdp.action_mask / np.maximum(1, cmdp.action_mask.sum(axis=2, keepdims=True))


def test_the_least_loss_by_lp_is_that_of_backward_induction() -> None:
    cmdp = cp.envs.make("inventory")
    mean = drifting(cmdp, episodes=50, key=3).mean()
    assert least_loss(cmdp, mean) == pytest.approx(-plan(cmdp.transition, -mean, cmdp.action_mask)[0], abs=1e-9)
    assert least_loss(cmdp, mean) < evaluate(cmdp.transition, uniform(cmdp), mean[None])[0]


@pytest.mark.parametrize("maker", [switching, drifting])
def test_the_regret_of_a_fixed_policy_is_that_of_the_sequence(maker) -> None:
    """The same as adding it up policy by policy; at the end the best fixed policy is the one of all episodes."""
    cmdp = tiny()
    losses = maker(cmdp, episodes=60, key=1)
    played = play_losses(UNIFORM, cmdp, losses, seeds=2, checkpoints=[20, 60])
    expected = fixed_policy_regret(cmdp, losses, [uniform(cmdp)] * 60)
    np.testing.assert_allclose(played.regret[-1], expected[-1], rtol=1e-5)
    np.testing.assert_allclose(played.best[-1], 60 * best_fixed_policy(cmdp, losses).value, rtol=1e-6)
    total = sum(evaluate(cmdp.transition, uniform(cmdp), losses(t)[None])[0] for t in range(20))
    np.testing.assert_allclose(played.loss[0], total, rtol=1e-5)


def test_both_loops_play_the_same_game(x64: None) -> None:
    """PO-DB compiled, and PO-DB called lane by lane on the host: the losses they meet differ by rounding."""
    cmdp, podb = tiny(), base.get("podb")

    def lanes(tree):
        return jax.tree.map(lambda leaf: np.asarray(leaf)[..., None], tree)

    def alone(tree):
        return jax.tree.map(lambda leaf: np.asarray(leaf)[..., 0], tree)

    hosted = Learner(
        "hosted",
        podb.hyperparameters,
        lambda problem, hyper: alone(podb.init(*lanes((problem, hyper)))),
        lambda problem, hyper, state: alone(podb.policy(*lanes((problem, hyper, state)))),
        lambda *args: alone(podb.update(*lanes(args))),
        compiled=False,
    )
    losses = chasing(cmdp, episodes=12, window=3, key=2)
    one, other = (play_losses(each, cmdp, losses, seeds=2, checkpoints=[6, 12]) for each in (podb, hosted))
    np.testing.assert_allclose(one.loss, other.loss, rtol=1e-4)
    np.testing.assert_allclose(one.regret, other.regret, atol=1e-3)


def test_an_adversary_that_remembers_punishes_what_was_played() -> None:
    """By hand: share 1, window 2. A policy that always plays action 0: 1/2, 3/4, 7/8, ... there, and 1/2, 1/4, ..."""
    cmdp = cp.make_cmdp(None, [[[0.5, 0.5]]], [[[[0.1, 0.1]]]], [0.5])
    losses = chasing(cmdp, episodes=9, share=1.0, window=2.0)
    policy = np.array([[[1.0, 0.0]]])
    memory = losses.start(policy)
    for expected in ([0.5, 0.5], [0.75, 0.25], [0.875, 0.125]):
        np.testing.assert_allclose(losses(0, memory)[0, 0], expected)
        memory = losses.remember(memory, policy)
    first = Learner("first", UNIFORM.hyperparameters, UNIFORM.init, lambda *known: _first(known[0]), UNIFORM.update)
    played = play_losses(first, cmdp, losses, seeds=1, checkpoints=[3])
    assert played.loss[0, 0] == pytest.approx(0.5 + 0.75 + 0.875)
    assert played.best[0, 0] == pytest.approx(0.5 + 0.25 + 0.125)
    even = play_losses(UNIFORM, cmdp, losses, seeds=1, checkpoints=[3])
    assert even.regret[0, 0] == pytest.approx(0, abs=1e-6)


def _first(problem):
    """The policy that always plays the first allowed action."""
    chosen = problem.action_mask & (jnp.cumsum(problem.action_mask, axis=2) == 1)
    return chosen.astype(problem.threshold.dtype)


def test_the_adversary_stays_in_range_and_bad_arguments_are_named() -> None:
    cmdp = cp.envs.make("inventory")
    losses = chasing(cmdp, episodes=40)
    memory = losses.start(uniform(cmdp))
    for t in range(40):
        table = losses(t, memory)
        assert table.min() >= 0
        assert table.max() <= 1
        assert (table[~np.asarray(cmdp.action_mask)] == 0).all()
        memory = losses.remember(memory, uniform(cmdp))
    with pytest.raises(ValueError, match=r"share = 1\.5"):
        chasing(cmdp, episodes=5, share=1.5)
    with pytest.raises(ValueError, match="one instance and one setting"):
        play_losses("podb", tiny(), drifting(tiny(), episodes=3), seeds=1, hparams=["theory", "tuned"])
