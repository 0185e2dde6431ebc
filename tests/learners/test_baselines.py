"""The optimistic baselines: against an independent plain-loop transcription on the same recorded draws, and with
estimates as good as exact, where what they compute is known.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.exact import optimum
from cpdpo_jax.learners import base, optdual, optimistic, optprimaldual, regularized_primal_dual
from cpdpo_jax.learners.estimates import Estimates, empty, observe
from tests.reference import baselines_numpy as reference
from tests.support import lanes_for, random_cmdp, replay, statistics_from

EPISODES = 500
RHO = 0.5
INSTANCES: dict[str, dict[str, Any]] = {
    "m=1": {"layers": 3, "states": 3, "actions": 2, "constraints": 1, "seed": 3},
    "m=2, masks": {"layers": 4, "states": 3, "actions": 3, "constraints": 2, "seed": 4, "masked": True},
    "wide": {"layers": 3, "states": 33, "actions": 2, "constraints": 1, "seed": 5},  # the loop over layers is compiled
}
# Between "theory", where nothing moves in 500 episodes, and rates at which rounding is amplified.
LIVELY: dict[str, dict[str, float]] = {
    "optprimaldual": {"policy_rate": 0.02, "dual_rate": 0.05, "dual_cap": 0.2, "bonus_scale": 0.5},
    "regularized_primal_dual": {
        "policy_rate": 0.02,
        "dual_rate": 0.05,
        "regularisation": 0.5,
        "entropy_ceiling": 1.5,
        "dual_cap": 0.2,
    },
    "optdual": {"dual_rate": 0.05},
}
CONFIDENCE = {"transition_confidence": 1e-4, "payoff_confidence": 1e-3}


def _record(state: Any) -> Any:
    return getattr(state, "log_weights", state.multipliers), state.multipliers


@cache
def _replayer(name: str) -> Any:
    return jax.jit(partial(replay, base.get(name), "bernoulli", record=_record))


@pytest.mark.parametrize("hparams", ["theory", "lively"])
@pytest.mark.parametrize(
    "instance", [pytest.param(name, marks=[pytest.mark.exhaustive] * (name == "m=1")) for name in INSTANCES]
)
@pytest.mark.parametrize("name", LIVELY)
def test_equals_the_transcription(x64: None, name: str, instance: str, hparams: str) -> None:
    cmdp, learner = random_cmdp(**INSTANCES[instance]), base.get(name)
    n = 40 if instance == "wide" else EPISODES  # of the EPISODES: the transcription takes its time
    draws = np.random.default_rng(11).random((n, cmdp.n_layers, 3 + cmdp.n_constraints))
    changed: dict[str, Any] = LIVELY[name] | CONFIDENCE if hparams == "lively" else {}
    lanes = lanes_for(learner, cmdp, episodes=EPISODES, preset="theory", rho=RHO, dtype=np.float64, **changed)
    run = _replayer(name)
    _, episodes, (weights, multipliers) = jax.tree.map(
        lambda a: np.asarray(a)[..., 0], run(lanes, jnp.asarray(draws)[..., None])
    )
    hyper = {field: float(np.asarray(value)[0]) for field, value in lanes.hyper._asdict().items()}
    if hparams == "theory":
        stated = reference.theory_constants(name, cmdp.action_mask, cmdp.n_constraints, EPISODES, RHO)
        assert hyper == pytest.approx(stated, rel=1e-14)
    expected = reference.run(
        name,
        transition=cmdp.transition,
        reward=cmdp.reward,
        cost=cmdp.cost,
        threshold=cmdp.threshold,
        action_mask=cmdp.action_mask,
        hyper=hyper,
        episodes=EPISODES,
        delta=0.05,
        uniforms=draws,
    )
    np.testing.assert_array_equal(episodes.trajectory.state, expected["states"])
    np.testing.assert_array_equal(episodes.trajectory.action, expected["actions"])
    np.testing.assert_allclose(episodes.policy, expected["policies"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(episodes.info.multipliers, expected["multipliers"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(multipliers, expected["next_multipliers"], rtol=0, atol=1e-9)
    if name != "optdual":
        np.testing.assert_allclose(weights, expected["log_weights"], rtol=0, atol=1e-9)
    if hparams == "lively" and n == EPISODES:  # else the comparison says little
        assert expected["multipliers"].max() > 0.1
        assert name == "optdual" or expected["multipliers"].max() == hyper["dual_cap"]
        assert np.ptp(expected["policies"], axis=0).max() > 0.3


def test_optdual_always_chooses_an_action() -> None:
    """Compiled as shipped, on many actions: XLA computes values twice there, and rounds them differently."""
    cmdp, learner = cp.envs.make("inventory"), base.get("optdual")
    lanes = lanes_for(learner, cmdp, episodes=2000, preset="tuned", rho=3.5, dtype=np.float32)
    draws = np.random.default_rng(3).random((200, cmdp.n_layers, 4, 1)).astype(np.float32)
    _, episodes, _ = jax.jit(partial(replay, learner, "bernoulli"))(lanes, draws)
    played = np.asarray(episodes.policy)[..., 0]
    np.testing.assert_array_equal(played.sum(axis=-1), np.broadcast_to(cmdp.action_mask.any(axis=-1), played.shape[:3]))


def exact_estimates(cmdp: cp.CMDP, lanes: int, dtype: Any) -> Estimates:
    """10^9 visits of every pair, in proportion to the true model: [...,lanes]."""
    n = 10**9

    def spread(array: np.ndarray) -> jax.Array:
        return jnp.asarray(np.repeat(array[..., None], lanes, axis=-1))

    payoff = n * np.concatenate([cmdp.reward[None], cmdp.cost])
    return Estimates(
        visits=spread(np.full(cmdp.reward.shape, n, np.int32)),
        transitions=spread(np.rint(n * cmdp.transition).astype(np.int32)),
        payoff_sum=spread(payoff.astype(dtype)),
        payoff_carry=spread(np.zeros(payoff.shape, dtype)),
    )


@pytest.mark.parametrize("instance", INSTANCES)
def test_optdual_plans_by_value_iteration_when_estimates_are_exact(x64: None, instance: str) -> None:
    """Tolerance: counts of 10^9 round transitions to 5e-10, over few layers of values below 10."""
    cmdp, rng = random_cmdp(**INSTANCES[instance]), np.random.default_rng(0)
    multipliers = rng.uniform(0, 3, (cmdp.n_constraints, 20))
    multipliers[:, 0] = 0
    mask = np.repeat(np.asarray(cmdp.action_mask)[..., None], 20, axis=-1)

    def plan(estimates: Estimates, multipliers: jax.Array, mask: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        box = optdual.confidence_set(estimates, mask.any(axis=2)[1:], jnp.full(20, 1e-12))
        payoff = estimates.payoff_sum / estimates.visits.astype(estimates.payoff_sum.dtype)
        return optdual.plan(*box, payoff[0], payoff[1:], multipliers, mask)

    run = jax.jit(plan)
    policy, value, costs = run(exact_estimates(cmdp, 20, np.float64), multipliers, mask)
    for b in range(20):
        lagrangian = cmdp.reward - np.tensordot(multipliers[:, b], cmdp.cost, 1)
        best, best_policy = optimum.plan(cmdp.transition, lagrangian, cmdp.action_mask)
        assert float(value[b]) == pytest.approx(best, abs=1e-7)
        np.testing.assert_array_equal(policy[..., b], best_policy)
        expected = optimum.evaluate(cmdp.transition, best_policy, cmdp.cost)
        np.testing.assert_allclose(costs[:, b], expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("module", "rates"),
    [
        pytest.param(
            regularized_primal_dual,
            {"policy_rate": 0.05, "dual_rate": 0.005, "regularisation": 0.001},
            id="regularized_primal_dual",
        ),
        pytest.param(
            optprimaldual,
            {"policy_rate": 0.05, "dual_rate": 0.005},
            id="optprimaldual",
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(optdual, {"dual_rate": 0.005}, id="optdual", marks=pytest.mark.exhaustive),
    ],
)
def test_averages_approach_the_optimum_when_estimates_are_exact(module: Any, rates: dict) -> None:
    """The value of the average occupancy is the average of the values: 1 - (weak regret) / (T OPT)."""
    cmdp, episodes = random_cmdp(**INSTANCES["m=2, masks"]), 10_000

    def init(problem: base.Problem, hyper: Any) -> Any:
        estimates = exact_estimates(cmdp, problem.episodes.shape[0], np.float32)
        start = module.LEARNER.init(problem, hyper)
        if module is optdual:
            return start._replace(estimates=estimates)
        return start._replace(statistics=statistics_from(estimates))

    learner = replace(module.LEARNER, name="exact", init=init)
    hparams = rates | {"transition_confidence": 1e-12, "payoff_confidence": 1e-12}
    result = cp.simulate(learner, cmdp, episodes=episodes, seeds=2, hparams=hparams, progress=False)
    optimum = float(result.data.optimum[0])
    regret = result.metric("weak_regret").values[..., -1] / episodes
    violation = result.metric("weak_violation").values[..., -1] / episodes
    assert (np.abs(regret) < 0.01 * optimum).all()
    assert (violation < 0.01 * np.max(cmdp.threshold)).all()
    # It is a saddle point that is approached, not a slack constraint that is ignored.
    assert float(np.max(cp.solve(cmdp).multipliers)) > 0.1


def test_statistics_are_kept_up_to_date() -> None:
    """What `count` updates row by row is what `observe` and `statistics_from` make of all counts."""
    cmdp, learner = random_cmdp(**INSTANCES["m=2, masks"]), optprimaldual.LEARNER
    lanes = lanes_for(learner, cmdp, episodes=300, preset="tuned", rho=RHO, dtype=np.float32, n_lanes=4)
    draws = np.random.default_rng(5).random((300, cmdp.n_layers, 5, 4)).astype(np.float32)
    run = jax.jit(partial(replay, learner, "bernoulli"))
    state, episodes, _ = run(lanes, draws)
    nothing = empty(lanes.problem, as_sampled=True)
    seen, _ = jax.lax.scan(lambda e, t: (observe(e, t), None), nothing, episodes.trajectory)
    chex.assert_trees_all_equal(state.statistics.estimates, seen)
    kept, anew = state.statistics, statistics_from(state.statistics.estimates)
    np.testing.assert_allclose(kept.deviation, anew.deviation, rtol=1e-6)
    assert float(kept.deviation.max()) > 0.5


def test_widths_by_hand() -> None:
    """p = (1/4, 3/4) of 4 visits, ln = 1/4: sqrt(1/16) = 1/4, and for each next state 2 sqrt(3/256) + 14/3/16."""
    mask = jnp.array([[[True], [False]], [[True], [True]]])[..., None]  # [L=2,S=2,A=1,B=1]: x_0, then two states
    problem_like = jnp.zeros((2, 1))  # M = 2
    problem = base.Problem(mask, problem_like, *jnp.ones((5, 1)))
    estimates = empty(problem)._replace(
        visits=jnp.array([4, 0, 2, 2], jnp.int32).reshape(2, 2, 1, 1),
        transitions=jnp.array([1, 3, 0, 0], jnp.int32).reshape(1, 2, 1, 2, 1),
    )
    log, visits = jnp.array([0.25]), jnp.maximum(estimates.visits, 1).astype(float)
    statistics = statistics_from(estimates)
    estimate = estimates.transitions.astype(float) / visits[:-1, :, :, None]
    width = optimistic.transition_width(estimate, visits[:-1], log)
    each = 2 * np.sqrt(3 / 256) + 14 / 3 / 16
    np.testing.assert_allclose(width[0, 0, 0, :, 0], [each, each], rtol=1e-6)
    bonus = optimistic.transition_bonus(statistics.deviation, visits, mask, log)
    np.testing.assert_allclose(bonus[0, 0, 0, 0], 2 * (each + each), rtol=1e-6)  # H = 2
    np.testing.assert_array_equal(bonus[1], 0)  # the step to x_L is known
    assert float(optimistic.payoff_width(visits, log)[0, 0, 0, 0]) == 0.25


@pytest.mark.parametrize("module", [optprimaldual, regularized_primal_dual, optdual])
def test_one_layer_is_a_bandit(module: Any) -> None:
    """L = 1, no transitions at all: the arm of reward 0.9 and cost 0.9 may be pulled half of the time."""
    cmdp = cp.make_cmdp(None, [[[0.9, 0.1]]], [[[[0.9, 0.1]]]], [0.5])
    result = cp.simulate(module.LEARNER, cmdp, episodes=5000, seeds=2, hparams="tuned", progress=False)
    assert (np.abs(result.metric("weak_regret").values[..., -1]) / 5000 < 0.1).all()
