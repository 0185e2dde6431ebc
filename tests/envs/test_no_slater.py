"""Environments without a Slater point: feasible, not strictly, with an optimum that must be learnt."""

from __future__ import annotations

import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.exact.optimum import evaluate

NAMES = ("least_cost", "fixed_cost")


@pytest.mark.parametrize("name", NAMES)
def test_the_slater_margin_is_zero_and_a_smaller_threshold_infeasible(name: str) -> None:
    cmdp = cp.envs.make(name, instances=4)
    solution = cp.solve(cmdp)
    np.testing.assert_allclose(solution.slater_margin, 0, atol=1e-9)
    np.testing.assert_allclose(solution.violation, 0, atol=1e-9)
    for instance in cp.unstack(cmdp):
        lower = instance.threshold - np.eye(instance.n_constraints)[0] * 1e-3
        with pytest.raises(cp.InfeasibleError, match="infeasible"):
            cp.solve(cp.make_cmdp(instance.transition, instance.reward, instance.cost, lower))


@pytest.mark.parametrize("name", NAMES)
def test_others_refuse_and_the_optimum_is_not_trivial(name: str) -> None:
    cmdp = cp.envs.make(name)
    solution = cp.solve(cmdp)
    with pytest.raises(ValueError, match="needs a strictly feasible policy"):
        cp.simulate("cpd_oppo", cmdp, episodes=10, seeds=1, progress=False)
    uniform = np.full(cmdp.reward.shape, 1 / cmdp.reward.shape[2])
    reward, *costs = evaluate(cmdp.transition, uniform, np.concatenate([cmdp.reward[None], cmdp.cost]))
    assert reward < solution.value - 0.01  # regret is not identically 0
    assert np.max(costs - cmdp.threshold) > 0.01
    assert solution.unconstrained_value > solution.value + 0.01


def test_all_but_the_last_action_of_least_cost_are_feasible() -> None:
    cmdp = cp.envs.make("least_cost", layers=3, states=2, actions=3, key=4)
    rng = np.random.default_rng(0)
    policy = np.zeros(cmdp.reward.shape)
    policy[:, :, :2] = rng.dirichlet(np.ones(2), size=(3, 2))
    assert evaluate(cmdp.transition, policy, cmdp.cost)[0] == pytest.approx(float(cmdp.threshold[0]), abs=1e-12)
    policy[1] = [0.0, 0.0, 1.0]
    assert evaluate(cmdp.transition, policy, cmdp.cost)[0] > float(cmdp.threshold[0]) + 0.1


def test_the_optimum_of_fixed_cost_mixes() -> None:
    cmdp = cp.envs.make("fixed_cost", key=3)
    policy = cp.solve(cmdp).policy
    assert ((policy > 0.01) & (policy < 0.99)).any()
    np.testing.assert_allclose(evaluate(cmdp.transition, policy, cmdp.cost), cmdp.threshold, atol=1e-9)
