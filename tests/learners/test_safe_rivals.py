"""Learners that are handed a safe policy: against independent transcriptions on the same recorded draws, with estimates
as good as exact, and whether they are safe.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.exact.optimum import evaluate
from cpdpo_jax.learners import base, opse
from cpdpo_jax.learners.base import Problem
from tests.learners.test_baselines import exact_estimates
from tests.learners.test_optcmdp import exact_counts
from tests.reference import dope_numpy, opse_numpy, optpess_lp_numpy
from tests.support import lanes_for, random_cmdp, replay, replay_on_host, statistics_from

EPISODES = 2000
LONG = bool(os.environ.get("CPDPO_LONG_TESTS"))  # all of the EPISODES against the transcriptions
INSTANCES: dict[str, dict[str, Any]] = {
    "m=1": {"layers": 3, "states": 3, "actions": 2, "constraints": 1, "seed": 3},
    "m=1, short": {"layers": 2, "states": 4, "actions": 4, "constraints": 1, "seed": 8},
    "m=1, masks": {"layers": 3, "states": 3, "actions": 3, "constraints": 1, "seed": 7, "masked": True},
    "m=2, masks": {"layers": 4, "states": 3, "actions": 3, "constraints": 2, "seed": 4, "masked": True},
}
ONE_CONSTRAINT = ["m=1", "m=1, short", "m=1, masks"]
PROGRAMS: dict[str, Any] = {"optpess_lp": optpess_lp_numpy, "dope": dope_numpy}
NO_WIDTH: dict[str, Any] = {"transition_confidence": 1e-12, "payoff_confidence": 1e-12}
every_program = pytest.mark.parametrize("name", PROGRAMS)


def _inputs(cmdp: cp.CMDP, lanes: Any) -> dict[str, Any]:
    """What a transcription receives of an instance."""
    hyper = {field: float(np.asarray(value)[0]) for field, value in lanes.hyper._asdict().items()}
    inputs = {name: getattr(cmdp, name) for name in ("transition", "reward", "cost", "threshold", "action_mask")}
    safe = np.asarray(lanes.problem.safe.policy)[..., 0]
    return inputs | {"hyper": hyper, "episodes": EPISODES, "delta": 0.05, "safe_policy": safe}


@every_program
@pytest.mark.parametrize("instance", ["m=1", "m=1, short", "m=2, masks"])
@pytest.mark.parametrize("preset", base.PRESETS)
def test_programs_equal_the_transcription(x64: None, name: str, instance: str, preset: str) -> None:
    """An LP has ties, so not every policy must be SciPy's: but every policy played must attain SciPy's optimum and
    satisfy the constraints, on counts kept by plain loops, and be SciPy's where that is the only one; when the safe
    policy is played is the same in every episode. With "theory" it is played throughout. The short form of the test has
    smaller widths than "tuned", so that plans come soon.
    """
    cmdp, learner = random_cmdp(**INSTANCES[instance]), base.get(name)
    n = EPISODES if LONG else 120 if name == "optpess_lp" else 60  # plain loops take their time
    draws = np.random.default_rng(11).random((n, cmdp.n_layers, 3 + cmdp.n_constraints))
    sooner: dict[str, Any] = (
        {} if LONG or preset == "theory" else {"transition_confidence": 1e-8, "payoff_confidence": 1e-6}
    )
    lanes = lanes_for(learner, cmdp, episodes=EPISODES, preset=preset, rho=0.5, dtype=np.float64, **sooner)
    _, episodes = replay_on_host(learner, "bernoulli", lanes, draws[..., None])
    episodes = jax.tree.map(lambda leaf: leaf[..., 0], episodes)
    safe_cost = np.asarray(lanes.problem.safe.cost)[:, 0]  # pyright: ignore[reportOptionalMemberAccess]
    inputs = _inputs(cmdp, lanes)
    if preset == "theory":
        constants = PROGRAMS[name].theory_constants(cmdp.action_mask, cmdp.threshold, safe_cost)
        assert inputs["hyper"] == pytest.approx(constants | {"solve_when_doubled": 0.0}, rel=1e-12)
    if name == "optpess_lp":
        inputs["safe_cost"] = safe_cost
    expected = PROGRAMS[name].run(**inputs, uniforms=draws, played=episodes.policy)
    np.testing.assert_array_equal(episodes.trajectory.state, expected["states"])
    np.testing.assert_array_equal(episodes.trajectory.action, expected["actions"])
    fallback = expected["fallback"]
    np.testing.assert_array_equal(np.diff(episodes.info.infeasible, prepend=0), fallback)
    np.testing.assert_array_equal(
        episodes.policy[fallback], np.broadcast_to(inputs["safe_policy"], episodes.policy[fallback].shape)
    )
    np.testing.assert_array_equal(episodes.info.multipliers[fallback], 0)
    planned = ~fallback
    attained = expected["attained"][planned]
    if name == "optpess_lp":
        assert (attained[:, 1:] <= np.asarray(cmdp.threshold) + 1e-7).all()
        attained = attained[:, 0]
    np.testing.assert_allclose(attained, expected["value"][planned], rtol=1e-7, atol=1e-7)
    only = planned & expected["unique"]
    np.testing.assert_allclose(episodes.policy[only], expected["policies"][only], atol=1e-6)
    np.testing.assert_allclose(episodes.info.multipliers[only], expected["multipliers"][only], rtol=1e-6, atol=1e-6)
    if preset == "theory":
        assert fallback.all()
    else:
        assert only.sum() > 5  # the comparison says something
        assert fallback.any()


@every_program
@pytest.mark.parametrize("masked", [False, True])
def test_programs_play_the_optimum_when_estimates_are_exact(name: str, masked: bool) -> None:
    """Through `simulate`, after one episode, which is the safe policy's: OPT within 1e-6, constraints to 1e-6."""
    cmdp, learner = random_cmdp(4, 3, 3, 2, seed=4, masked=masked), base.get(name)

    def init(problem: Problem, hyper: Any) -> Any:
        return learner.init(problem, hyper)._replace(counts=exact_counts(cmdp))

    exact = replace(learner, name="exact", init=init)
    data = cp.simulate(exact, cmdp, episodes=3, seeds=2, hparams=NO_WIDTH, checkpoints=[1, 2, 3], progress=False).data
    assert (np.abs(data.regret_gap.sel(episode=[2, 3])) < 1e-6).all()
    assert (data.violation_gap.sel(episode=[2, 3]) < 1e-6).all()
    assert (data.infeasible == 1).all()
    best, safest = cp.solve(cmdp), float(cp.solve(cmdp).slater_margin)
    assert (data.violation_gap.sel(episode=1) <= -0.5 * safest + 1e-9).all()
    multipliers = data.multiplier.sel(episode=3).values.reshape(2, 2)
    np.testing.assert_allclose(multipliers, np.tile(best.multipliers, (2, 1)), atol=1e-4)


@pytest.mark.parametrize("safe_episodes", [0, 1, 2, 5])
def test_dope_plays_the_safe_policy_in_its_first_episodes(safe_episodes: int) -> None:
    """pi_1 is the safe policy in any case; the LP of exact estimates always has a solution.

    The counts of these estimates are those of `played` earlier episodes.
    """
    cmdp = random_cmdp(3, 2, 2, 1, seed=4)
    played = int(exact_counts(cmdp).visits[0].sum())

    def init(problem: Problem, hyper: Any) -> Any:
        return base.get("dope").init(problem, hyper)._replace(counts=exact_counts(cmdp))

    exact = replace(base.get("dope"), name="exact", init=init)
    hparams = NO_WIDTH | {"safe_episodes": played + safe_episodes}
    data = cp.simulate(exact, cmdp, episodes=8, seeds=1, hparams=hparams, checkpoints=range(1, 9), progress=False).data
    safest = max(safe_episodes, 1)
    assert data.infeasible.squeeze().values.tolist() == [min(t, safest) for t in range(1, 9)]
    assert (np.abs(data.regret_gap.squeeze().values) < 1e-6).tolist() == [t > safest for t in range(1, 9)]


@every_program
def test_no_episode_is_unsafe_and_the_plan_takes_over(name: str) -> None:
    """A bandit with constants of theory but for the reward's: the dear arm is pulled more and more, never too often."""
    cmdp = cp.make_cmdp(None, [[[0.9, 0.1]]], [[[[0.9, 0.1]]]], [0.5])
    hparams: dict[str, Any] = {"preset": "theory", "compensation": 0.5, "payoff_confidence": 0.1}
    hparams |= {"safe_episodes": 30} if name == "dope" else {}
    data = cp.simulate(name, cmdp, episodes=1500, seeds=3, hparams=hparams, checkpoints=30, progress=False).data
    assert float(data.strong_violation.max()) == 0
    assert (data.infeasible.isel(episode=-1) < 1000).all()
    assert (data.infeasible.isel(episode=0) > 20).all()
    gap = data.regret_gap.squeeze(["learner", "instance", "hparams"]).transpose("episode", "seed").values
    assert (gap[-1] < 0.8 * gap[0]).all()


@cache
def _opse_replayer() -> Any:
    return jax.jit(partial(replay, opse.LEARNER, "bernoulli"))


@pytest.mark.parametrize("instance", ONE_CONSTRAINT)
@pytest.mark.parametrize("preset", base.PRESETS)
def test_opse_equals_the_transcription(x64: None, instance: str, preset: str) -> None:
    """Trajectories and fallbacks exactly, policies and multipliers to 1e-9. With "theory" pi_b is played throughout."""
    cmdp, n = random_cmdp(**INSTANCES[instance]), EPISODES if LONG else 150
    draws = np.random.default_rng(11).random((n, cmdp.n_layers, 4))
    lanes = lanes_for(opse.LEARNER, cmdp, episodes=EPISODES, preset=preset, rho=0.5, dtype=np.float64)
    _, episodes, _ = jax.tree.map(lambda a: np.asarray(a), _opse_replayer()(lanes, jnp.asarray(draws)[..., None]))
    episodes = jax.tree.map(lambda leaf: leaf[..., 0], episodes)
    inputs = _inputs(cmdp, lanes)
    if preset == "theory":
        safe_cost = np.asarray(lanes.problem.safe.cost)[:, 0]  # pyright: ignore[reportOptionalMemberAccess]
        constants = opse_numpy.theory_constants(cmdp.action_mask, EPISODES, cmdp.threshold, safe_cost)
        assert inputs["hyper"] == pytest.approx(constants, rel=1e-12)
    expected = opse_numpy.run(**inputs, uniforms=draws)
    np.testing.assert_array_equal(episodes.trajectory.state, expected["states"])
    np.testing.assert_array_equal(episodes.trajectory.action, expected["actions"])
    np.testing.assert_array_equal(np.diff(episodes.info.infeasible, prepend=0), expected["fallback"])
    np.testing.assert_allclose(episodes.policy, expected["policies"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(episodes.info.multipliers, expected["multipliers"], rtol=1e-9, atol=1e-9)
    if preset == "tuned":  # else it says little
        assert 1 < expected["fallback"].sum() < 0.7 * n
        assert np.ptp(expected["policies"][~expected["fallback"]], axis=0).max() > 0.1
    else:
        assert expected["fallback"].all()


@pytest.mark.parametrize("instance", ["m=1", "m=1, masks"])
def test_opse_is_near_the_optimum_when_estimates_are_exact(x64: None, instance: str) -> None:
    """A softmax at rate c loses at most H ln|A| / c, here 1e-3; the bisection stays on the feasible side."""
    cmdp = random_cmdp(**INSTANCES[instance])
    solution = cp.solve(cmdp)
    hparams: dict[str, Any] = {"policy_rate": 3000.0, "dual_cap": 50.0, "compensation": 0.1} | NO_WIDTH
    lanes = lanes_for(opse.LEARNER, cmdp, episodes=EPISODES, preset="theory", rho=0.5, dtype=np.float64, **hparams)
    statistics = statistics_from(exact_estimates(cmdp, 1, np.float64))
    policy, multiplier, fails = jax.jit(opse.choose_policy)(lanes.problem, lanes.hyper, statistics)
    assert not fails[0]
    policy = np.asarray(policy)[..., 0]
    reward, cost = (evaluate(cmdp.transition, policy, payoff) for payoff in (cmdp.reward[None], cmdp.cost))
    assert float(solution.value) - 1e-3 < float(reward[0]) <= float(solution.value) + 1e-7
    assert (cost <= np.asarray(cmdp.threshold)).all()
    assert float(multiplier[0]) == pytest.approx(float(np.max(solution.multipliers)), rel=0.05)


def test_opse_refuses_several_constraints() -> None:
    cmdp = random_cmdp(**INSTANCES["m=2, masks"])
    with pytest.raises(ValueError, match="handles one constraint, but the CMDP has 2"):
        cp.simulate("opse", cmdp, episodes=3, seeds=1, progress=False)


def test_opse_is_safe_and_learns() -> None:
    """The bandit of the programs' test, in float32: the widths of theory, a rate and a cap that fit."""
    cmdp = cp.make_cmdp(None, [[[0.9, 0.1]]], [[[[0.9, 0.1]]]], [0.5])
    hparams = {"preset": "theory", "compensation": 0.3, "policy_rate": 100, "dual_cap": 50}
    data = cp.simulate("opse", cmdp, episodes=3000, seeds=4, hparams=hparams, checkpoints=30, progress=False).data
    assert float(data.strong_violation.max()) == 0
    assert (data.infeasible.isel(episode=-1) < 2000).all()
    assert (data.infeasible.isel(episode=0) > 20).all()
    gap = data.regret_gap.squeeze(["learner", "instance", "hparams"]).transpose("episode", "seed").values
    assert (gap[-1] < 0.8 * gap[0]).all()
