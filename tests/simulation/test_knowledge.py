"""Extra knowledge: the safe policy given to some learners, and its display with their results."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax import cli
from cpdpo_jax.exact.lp import evaluate
from cpdpo_jax.learners import base
from cpdpo_jax.learners.base import Learner
from cpdpo_jax.simulation.knowledge import safe_policy
from tests.support import planned, random_cmdp


@pytest.mark.parametrize("safety", [1.0, 0.5, 0.01])
def test_the_safe_policy_keeps_its_share_of_the_margin(safety: float) -> None:
    """Costs are linear in occupancies: between those of the Slater policy and of the optimum, exactly."""
    cmdp = cp.stack([random_cmdp(4, 3, 3, 2, seed=4, masked=True), random_cmdp(4, 3, 3, 2, seed=5)])
    solution = cp.solve(cmdp)
    safe = safe_policy(cmdp, solution, safety)
    mask = np.asarray(cmdp.action_mask)
    np.testing.assert_allclose(safe.policy.sum(axis=2), mask.any(axis=2), atol=1e-12)
    assert (safe.policy[~mask] == 0).all()
    for b in range(2):
        model = [np.asarray(array)[..., b] for array in (cmdp.transition, cmdp.cost)]
        cost, safest, best = (
            evaluate(model[0], policy[..., b], model[1])
            for policy in (safe.policy, solution.slater_policy, solution.policy)
        )
        np.testing.assert_allclose(cost, safe.cost[:, b], atol=1e-12)
        np.testing.assert_allclose(cost, safety * safest + (1 - safety) * best, atol=1e-12)
        assert (cost <= np.asarray(cmdp.threshold)[:, b] - safety * solution.slater_margin[b] + 1e-9).all()


def test_the_option_says_how_safe() -> None:
    cmdp = random_cmdp(3, 3, 2, 1, seed=3)
    gaps = []
    for safety in (1.0, 0.25):
        plan = planned("optpess_lp", cmdp, episodes=9, seeds=1, safety=safety).learners[0]
        assert plan.problems[0].safe is not None
        gaps.append(float(cmdp.threshold[0] - plan.problems[0].safe.cost[0, 0]))
    rho = float(cp.solve(cmdp).slater_margin)
    np.testing.assert_allclose(gaps, [rho, 0.25 * rho], atol=1e-9)  # the constraint binds
    mistakes: tuple[Any, ...] = (0, 1.5, "safe", True)
    for wrong in mistakes:
        with pytest.raises(ValueError, match="share of the Slater margin; give a number above 0, at most 1"):
            cp.simulate("optpess_lp", cmdp, episodes=2, seeds=1, safety=wrong, progress=False)


def test_without_a_strictly_safe_policy_it_is_refused_whatever_rho_is_believed() -> None:
    cmdp = cp.make_cmdp(None, [[[0.9, 0.1]]], [[[[0.9, 0.1]]]], [0.1])
    with pytest.raises(ValueError, match=r"'dope' needs a strictly safe policy, but instance .* has none"):
        cp.simulate("dope", cmdp, episodes=2, seeds=1, rho=0.5, progress=False)


def test_what_nobody_can_hand_over_is_refused() -> None:
    like = base.get("uniform")
    wish = Learner("wish", like.hyperparameters, like.init, like.policy, like.update, extra_knowledge="the true model")
    with pytest.raises(ValueError, match="extra_knowledge = 'the true model', which is not available"):
        base.register(wish)
    assert "wish" not in base.names()


def test_it_is_shown_in_results_tables_and_the_list(tmp_path, capsys) -> None:
    cmdp = random_cmdp(3, 3, 2, 1, seed=3)
    result = cp.simulate(["optpess_lp", "uniform"], cmdp, episodes=3, seeds=1, progress=False)
    assert result.data.extra_knowledge.values.tolist() == [base.SAFE_POLICY, ""]
    costs = result.data.safe_cost.values.squeeze()
    assert costs[0] < cmdp.threshold[0]
    assert np.isnan(costs[1])
    assert "optpess_lp*  " in result.summary()
    assert "uniform " in result.summary()
    assert result.summary().splitlines()[-1] == f"* extra knowledge, which the others do not have: {base.SAFE_POLICY}"
    alone = cp.simulate("uniform", cmdp, episodes=3, seeds=1, progress=False)
    assert "*" not in alone.summary()
    assert "safe_cost" not in alone.data
    assert cli.main(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["extra_knowledge"]
    assert listed["dope"] == listed["optpess_lp"] == base.SAFE_POLICY
    assert "uniform" not in listed
    assert cli.main(["list", "dope"]) == 0
    assert f"Extra knowledge required: {base.SAFE_POLICY}." in capsys.readouterr().out
    assert cli.main(["list"]) == 0
    entry = " ".join(capsys.readouterr().out.partition("\n  optpess_lp ")[2].partition("\n  optprimaldual")[0].split())
    assert f"(requires {base.SAFE_POLICY})" in entry


def test_it_is_shown_by_a_stored_run(tmp_path) -> None:
    config = {"learners": ["optpess_lp", "uniform"], "environments": ["factored"], "episodes": 3, "seeds": 1}
    cp.run(config, tmp_path / "run", progress=False)
    (table,) = cp.load_run(tmp_path / "run")
    knowledge = dict(zip(table.result.data.learner.values, table.result.data.extra_knowledge.values, strict=True))
    assert knowledge == {"optpess_lp": base.SAFE_POLICY, "uniform": ""}
    from cpdpo_jax.sweeps.load import format_rows, rows

    text = format_rows(rows([table]))
    assert "optpess_lp*" in text
    assert text.splitlines()[-1].endswith(base.SAFE_POLICY)
