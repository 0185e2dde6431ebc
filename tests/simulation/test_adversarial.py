"""Runs against changing losses: sums, best fixed policy by LP, both loops, and an adaptive adversary."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure

import cpdpo_jax as cp
from cpdpo_jax.common import palette
from cpdpo_jax.envs import best_fixed_policy, chasing, drifting, fixed_policy_regret, switching
from cpdpo_jax.exact.lp import evaluate, plan
from cpdpo_jax.learners import base
from cpdpo_jax.learners.base import Learner
from cpdpo_jax.simulation.adversarial import least_loss
from cpdpo_jax.simulation.rollout import sample

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
    """Equal to a sum policy by policy; finally, the best fixed policy is the one for all episodes."""
    cmdp = tiny()
    losses = maker(cmdp, episodes=60, key=1)
    played = cp.play_losses(UNIFORM, cmdp, losses, seeds=2, checkpoints=[20, 60])
    expected = fixed_policy_regret(cmdp, losses, [uniform(cmdp)] * 60)
    np.testing.assert_allclose(played.regret[-1], expected[-1], rtol=1e-5)
    np.testing.assert_allclose(played.best[-1], 60 * best_fixed_policy(cmdp, losses).value, rtol=1e-6)
    total = sum(evaluate(cmdp.transition, uniform(cmdp), losses(t)[None])[0] for t in range(20))
    np.testing.assert_allclose(played.loss[0], total, rtol=1e-5)


def test_both_loops_play_the_same_game(x64: None) -> None:
    """PO-DB compiled, and lane by lane on the host: their losses differ by rounding only."""
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
    compiled, other = (cp.play_losses(each, cmdp, losses, seeds=2, checkpoints=[6, 12]) for each in (podb, hosted))
    np.testing.assert_allclose(compiled.loss, other.loss, rtol=1e-4)
    np.testing.assert_allclose(compiled.regret, other.regret, atol=1e-3)


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
    played = cp.play_losses(first, cmdp, losses, seeds=1, checkpoints=[3])
    assert played.loss[0, 0] == pytest.approx(0.5 + 0.75 + 0.875)
    assert played.best[0, 0] == pytest.approx(0.5 + 0.25 + 0.125)
    even = cp.play_losses(UNIFORM, cmdp, losses, seeds=1, checkpoints=[3])
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
    with pytest.raises(ValueError, match="one instance and one choice of hparams"):
        cp.play_losses("podb", tiny(), drifting(tiny(), episodes=3), seeds=1, hparams=["theory", "tuned"])


def test_with_constraints_the_best_policy_meets_them() -> None:
    """By hand: action 1 has loss 0 and cost 1; the best policy plays it with probability 1/4, the threshold."""
    cmdp = cp.make_cmdp(None, [[[0.5, 0.5]]], [[[[0.0, 1.0]]]], [0.25])
    losses = cp.envs.Losses(np.array([[[[1.0, 0.0]]]]), lambda t: [1.0], episodes=8, name="mine")
    free = cp.play_losses("uniform", cmdp, losses, seeds=2, checkpoints=[4, 8])
    bound = cp.play_losses("uniform", cmdp, losses, seeds=2, constraints=True, checkpoints=[4, 8])
    np.testing.assert_allclose(free.loss, [[2, 2], [4, 4]], rtol=1e-6)
    np.testing.assert_allclose(free.best, 0, atol=1e-6)
    np.testing.assert_allclose(bound.best, [[3, 3], [6, 6]], rtol=1e-6)
    np.testing.assert_allclose(bound.regret, [[-1, -1], [-2, -2]], rtol=1e-5)
    for run in (free, bound):
        np.testing.assert_allclose(run.violation, [[1, 1], [2, 2]], rtol=1e-6)  # (1/2 - 1/4) per episode


def observed(learner: Learner, cmdp: cp.CMDP, losses: cp.envs.Losses, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """The rewards [T,L] and costs [T,M,L] of one seed that a learner on the host observes; its policies are uniform."""
    seen: list[Any] = []

    def update(problem: Any, hyper: Any, state: Any, policy: Any, trajectory: Any) -> Any:
        seen.append(trajectory)
        return state, base.Info(np.zeros(len(problem.threshold)), np.zeros((), np.int32))

    spy = replace(
        learner, name="spy", compiled=False, update=update,
        init=lambda problem, hyper: None, policy=lambda problem, hyper, state: uniform(cmdp),
    )  # fmt: skip
    cp.play_losses(spy, cmdp, losses, seeds=1, checkpoints=1, **options)
    return np.array([each.reward for each in seen]), np.array([each.cost for each in seen])


def test_costs_are_sampled_if_requested_and_losses_never_are() -> None:
    cmdp = cp.envs.make("random", layers=3, states=2, actions=2, constraints=2, key=4)
    losses = switching(cmdp, episodes=400, switches=3, key=1)
    reward, cost = observed(UNIFORM, cmdp, losses)
    noisy_reward, noisy_cost = observed(UNIFORM, cmdp, losses, noisy_costs=True)
    np.testing.assert_array_equal(noisy_reward, reward)
    assert set(np.unique(noisy_cost)) == {0.0, 1.0}
    assert not set(np.unique(cost)) & {0.0, 1.0}
    error = np.abs((noisy_cost - cost).mean(axis=0))  # standard deviation at most 1/2 / sqrt(400) = 0.025
    assert error.max() < 5 * 0.025
    assert error.min() > 0


@pytest.mark.parametrize("noise", ["bernoulli", "beta", "deterministic"])
def test_reward_and_costs_can_have_different_noise(noise: str) -> None:
    rng = np.random.default_rng(1)
    mean, uniforms, concentration = rng.random((3, 4, 5)), rng.random((3, 4, 5)), np.full(5, 2.0)
    means, draws, shape = (jnp.asarray(array, jnp.float32) for array in (mean, uniforms, concentration))
    mixed = sample(means, draws, shape, ("deterministic", noise))
    np.testing.assert_array_equal(mixed[0], means[0])
    np.testing.assert_array_equal(mixed[1:], sample(means[1:], draws[1:], shape, noise))


def test_bv_ops_and_s_ops_play_losses_with_noisy_costs() -> None:
    """The mixture of S-OPS is safe in every episode; with the theory's constants BV-OPS violates, but has less loss."""
    cmdp = cp.envs.make("random", layers=2, states=2, actions=2, key=3)
    losses = switching(cmdp, episodes=60, switches=1, key=1)
    runs = {
        name: cp.play_losses(
            name, cmdp, losses, seeds=2, hparams="theory", constraints=True, noisy_costs=True, checkpoints=4
        )
        for name in ("bv_ops", "s_ops")
    }
    for run in runs.values():
        assert run.regret.shape == (4, 2)
        np.testing.assert_allclose(run.regret, run.loss - run.best)
    assert (runs["s_ops"].violation == 0).all()
    assert (runs["bv_ops"].violation[-1] > 1).all()
    np.testing.assert_allclose(runs["s_ops"].best, runs["bv_ops"].best)
    assert (runs["bv_ops"].loss[-1] < runs["s_ops"].loss[-1]).all()


def test_seeds_are_those_named_and_their_order_is_kept() -> None:
    losses = switching(tiny(), episodes=10, key=1)
    first = cp.play_losses("podb", tiny(), losses, seeds=3)
    again = cp.play_losses("podb", tiny(), losses, seeds=[2, 0])
    np.testing.assert_array_equal(again.loss, first.loss[:, [2, 0]])
    assert (first.loss[-1, 0] != first.loss[-1, 1:]).all()


def test_the_figure_has_a_line_per_run_in_the_style_of_its_learner() -> None:
    losses = switching(tiny(), episodes=10, key=1)
    runs = [cp.play_losses(name, tiny(), losses, seeds=2, hparams=preset)
            for name, preset in (("podb", "tuned"), ("podb", "theory"), ("uniform", "tuned"))]  # fmt: skip
    (axis,) = cp.plot_losses(runs).axes
    lines = {str(line.get_label()): line for line in axis.lines if not str(line.get_label()).startswith("_")}
    assert list(lines) == ["podb, tuned", "podb, theory", "uniform, tuned"]
    for run, (label, line) in zip(runs, lines.items(), strict=True):
        np.testing.assert_allclose(np.asarray(line.get_ydata(), float), run.regret.mean(axis=1))
        assert line.get_color() == palette.learner_style(label.split(",")[0]).colour
    assert lines["podb, tuned"].get_linestyle() != lines["podb, theory"].get_linestyle()
    own = Figure().subplots()
    assert cp.plot_losses(runs[0], axes=own) is own.figure
    with pytest.raises(ValueError, match="runs is empty"):
        cp.plot_losses([])
