"""BV-OPS and S-OPS: against an independent transcription, and whether the mixture is safe."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.exact.lp import evaluate
from cpdpo_jax.learners import base, bv_ops, s_ops
from cpdpo_jax.simulation import host_loop
from cpdpo_jax.simulation.randomness import init_key, update_key
from tests.reference import ops_numpy
from tests.support import lanes_for, random_cmdp, replay_on_host

EPISODES = 2000
LONG = bool(os.environ.get("CPDPO_LONG_TESTS"))  # more episodes against the transcription
INSTANCES: dict[str, dict[str, Any]] = {
    "plain": {"layers": 3, "states": 3, "actions": 2, "constraints": 1, "seed": 3},
    "short": {"layers": 2, "states": 4, "actions": 4, "constraints": 1, "seed": 8},
    "masks": {"layers": 4, "states": 3, "actions": 3, "constraints": 2, "seed": 4, "masked": True},
}
BANDIT = cp.make_cmdp(None, [[[0.9, 0.1]]], [[[[0.9, 0.1]]]], [0.5])
both = pytest.mark.parametrize("name", ["bv_ops", "s_ops"])


@both
@pytest.mark.parametrize("instance", INSTANCES)
@pytest.mark.parametrize("preset", base.PRESETS)
def test_equals_the_transcription(x64: None, name: str, instance: str, preset: str) -> None:
    """Trajectories and weights, policies to 1e-6: both projections stop near the minimiser, as those of UOB-REPS do.

    "tuned" has wider transition sets here: the transcription, with a price for each row of the set, does not converge
    on those of 1e-7 (the learner's projection, with one for each state, does).
    """
    cmdp, n = random_cmdp(**INSTANCES[instance]), (EPISODES if preset == "theory" else 300) if LONG else 40
    learner = base.get(name)
    draws = np.random.default_rng(11).random((n, cmdp.n_layers, 3 + cmdp.n_constraints))
    wider: dict[str, Any] = {"transition_confidence": 1e-3} if preset == "tuned" else {}
    lanes = lanes_for(learner, cmdp, episodes=EPISODES, preset=preset, rho=0.5, dtype=np.float64, **wider)
    _, episodes = replay_on_host(learner, "bernoulli", lanes, draws[..., None])
    episodes = jax.tree.map(lambda leaf: leaf[..., 0], episodes)
    hyper = {field: float(np.asarray(value)[0]) for field, value in lanes.hyper._asdict().items()}
    if preset == "theory":
        assert hyper == pytest.approx(
            ops_numpy.theory_constants(cmdp.action_mask, cmdp.n_constraints, EPISODES, 0.05), rel=1e-12
        )
    extra: dict[str, Any] = {}
    if name == "s_ops":
        safe, keys = jax.tree.map(lambda leaf: np.asarray(leaf)[..., 0], (lanes.problem.safe, lanes.keys))
        drawn_with = [init_key(keys, 0), *(update_key(keys, t) for t in range(n - 1))]
        coins = np.array([s_ops.uniform(np.asarray(key)) for key in drawn_with])
        extra = {"safe": (safe.policy, safe.cost), "coins": coins}
    expected = ops_numpy.run(
        transition=cmdp.transition,
        action_mask=cmdp.action_mask,
        threshold=cmdp.threshold,
        hyper=hyper,
        episodes=EPISODES,
        delta=0.05,
        losses=1.0 - (draws[:, :, 2, None, None] < cmdp.reward),
        costs=(draws[:, :, 3:].transpose(0, 2, 1)[..., None, None] < np.asarray(cmdp.cost)).astype(float),
        uniforms=draws,
        **extra,
    )
    np.testing.assert_array_equal(episodes.trajectory.state, expected["states"])
    np.testing.assert_array_equal(episodes.trajectory.action, expected["actions"])
    np.testing.assert_allclose(episodes.policy, expected["policies"], rtol=0, atol=1e-6)
    assert np.ptp(expected["policies"], axis=0).max() > 0.05  # else it says little
    if name == "s_ops":
        safe_episodes = np.append(0, np.cumsum(coins < expected["weight"]))[1:]
        np.testing.assert_array_equal(episodes.info.infeasible, safe_episodes)
        assert 0 < safe_episodes[-1] < n
    else:
        np.testing.assert_array_equal(episodes.info.infeasible, expected["unsolvable"])


def run(learner: Any, cmdp: Any, **keywords: Any) -> Any:
    """[episode, seed] of one learner, instance and hparams."""
    options: dict[str, Any] = {"progress": False, "hparams": "theory", **keywords}
    data = cp.simulate(learner, cmdp, **options).data
    return data.squeeze(["learner", "instance", "hparams"])


def test_the_mixture_is_safe_in_every_episode_and_what_is_drawn_is_not() -> None:
    """The metrics are the mixture's. Without `mixture` the same draws are counted one by one, and some violate."""
    data = run("s_ops", BANDIT, episodes=300, seeds=6, checkpoints=30)
    assert float(data.strong_violation.max()) == 0
    assert float(data.strong_regret.min()) > 0
    drawn = run(replace(s_ops.LEARNER, name="drawn", mixture=None), BANDIT, episodes=300, seeds=6, checkpoints=30)
    assert float(drawn.strong_violation.isel(episode=-1).min()) > 0
    np.testing.assert_array_equal(drawn.infeasible, data.infeasible)


def test_without_the_pessimism_the_mixture_violates() -> None:
    """The negative control: tiny widths, so that lambda trusts the estimates."""
    hparams = {"preset": "theory", "payoff_confidence": 1e-9, "transition_confidence": 1e-9, "policy_rate": "x10"}
    data = run("s_ops", random_cmdp(**INSTANCES["plain"]), episodes=150, seeds=3, hparams=hparams)
    assert float(data.strong_violation.max()) > 0.1


def test_the_mixture_by_hand(x64: None) -> None:
    """lambda_1 = (L - alpha) / (L - beta) of the bandit, and the host loop's value of the mixture."""
    lanes = host_loop.select_lane(
        lanes_for(s_ops.LEARNER, BANDIT, episodes=100, preset="theory", rho=0.4, dtype=np.float64), 0
    )
    state = host_loop.init_learner(s_ops.LEARNER, lanes, 0)
    beta = float(lanes.problem.safe.cost[0])
    weight = (1 - 0.5) / (1 - beta)
    assert float(state.weight) == pytest.approx(weight, rel=1e-12)
    payoff = np.asarray(BANDIT.cost)
    value = host_loop.values(s_ops.LEARNER, lanes, state, np.zeros(BANDIT.action_mask.shape), payoff)
    np.testing.assert_allclose(value, [weight * beta + (1 - weight) * 0.5], rtol=1e-6)
    weights, policies = s_ops.mixture(lanes.problem, lanes.hyper, state)
    apart = [float(evaluate(BANDIT.transition, policy, payoff)[0]) for policy in policies]
    np.testing.assert_allclose(value, [weights @ apart], rtol=1e-12)


def test_pi_b_is_drawn_as_often_as_its_weight_says(x64: None) -> None:
    """600 draws of weight about 0.56: within 5 standard deviations, 0.1."""
    keys = np.random.default_rng(3).integers(0, 2**32, (600, 2), dtype=np.uint32)
    lanes = host_loop.select_lane(
        lanes_for(s_ops.LEARNER, BANDIT, episodes=100, preset="theory", rho=0.4, dtype=np.float64), 0
    )
    states = [s_ops.init(lanes.problem, lanes.hyper, key) for key in keys]
    assert np.mean([state.plays_safe for state in states]) == pytest.approx(float(states[0].weight), abs=0.1)


def test_a_compiled_learner_with_a_mixture_is_refused() -> None:
    with pytest.raises(ValueError, match="'s_ops' declares a mixture but compiled is True"):
        replace(s_ops.LEARNER, compiled=True)


def test_without_solution_the_cost_rows_are_left_out(x64: None) -> None:
    """Thresholds below every cost, seen without noise: S-OPS plays pi_b, BV-OPS goes on, and both say how often."""
    cmdp = cp.make_cmdp(None, [[[0.9, 0.1]]], [[[[0.9, 0.4]]]], [0.3])
    lanes = lanes_for(bv_ops.LEARNER, cmdp, episodes=100, preset="theory", rho=0.0, dtype=np.float64)
    lanes = lanes._replace(hyper=lanes.hyper._replace(payoff_confidence=np.full(1, 1e-9)))
    state, episodes = replay_on_host(
        bv_ops.LEARNER, "deterministic", lanes, np.random.default_rng(1).random((40, 1, 4, 1))
    )
    assert 0 < int(state.unsolvable[0]) <= 40
    assert int(state.solvable[0]) == 0
    np.testing.assert_allclose(np.asarray(episodes.policy).sum(axis=3), 1)


def test_bv_ops_keeps_the_constraints_that_uob_reps_ignores() -> None:
    cmdp = random_cmdp(**INSTANCES["plain"])
    ours, theirs = (run(name, cmdp, episodes=300, seeds=2, hparams="tuned") for name in ("bv_ops", "uob_reps"))
    ends = [float(data.strong_violation.isel(episode=-1).max("constraint").mean()) for data in (ours, theirs)]
    assert ends[0] < 0.5 * ends[1]
