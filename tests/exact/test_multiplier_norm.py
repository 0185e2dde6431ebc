"""The least sup-norm of an optimal dual solution, against exact penalties: a second, primal linear program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

import cpdpo_jax as cp
from cpdpo_jax.exact.optimum import least_multiplier_norm


def penalised_optimum(cmdp: cp.CMDP, weight: float) -> float:
    """max_q sum q r - weight sum_i [sum q g_i - alpha_i]^+ over occupancy measures q.

    OPT if and only if weight >= Lambda: by duality it is the least dual value over multipliers of at most `weight`.
    """
    transition, mask = np.asarray(cmdp.transition), np.asarray(cmdp.action_mask)
    pairs = [tuple(pair) for pair in np.argwhere(mask)]
    states = {tuple(state): i for i, state in enumerate(np.argwhere(mask.any(axis=2)))}
    m = cmdp.n_constraints
    flow, start = np.zeros((len(states), len(pairs) + m)), np.zeros(len(states))
    start[states[0, 0]] = 1.0
    for j, (k, x, a) in enumerate(pairs):
        flow[states[k, x], j] += 1.0
        for y in range(mask.shape[1]):
            if k + 1 < len(mask) and transition[k, x, a, y] > 0:
                flow[states[k + 1, y], j] -= transition[k, x, a, y]
    excess = np.concatenate([np.array([[g[pair] for pair in pairs] for g in cmdp.cost]), -np.eye(m)], axis=1)
    objective = np.concatenate([[-cmdp.reward[pair] for pair in pairs], np.full(m, weight)])
    found = linprog(objective, excess, np.asarray(cmdp.threshold), flow, start)
    return -float(found.fun)


ENVIRONMENTS: list[tuple[str, dict[str, Any]]] = [
    ("factored", {}),
    ("hard", {"constraints": 2, "share": 0.3}),
    ("random", {"layers": 3, "states": 3, "constraints": 2, "key": 2}),
    ("least_cost", {"key": 1}),
    ("fixed_cost", {"key": 1}),
    ("fixed_cost", {"key": 2}),
]


@pytest.mark.parametrize(("name", "parameters"), ENVIRONMENTS)
def test_a_penalty_is_exact_from_the_norm_on(name: str, parameters: dict[str, Any]) -> None:
    cmdp = cp.envs.make(name, **parameters)
    solution = cp.solve(cmdp)
    (norm,) = least_multiplier_norm(cmdp, solution)
    assert norm > 0.01
    assert norm <= solution.multipliers.max() + 1e-6
    assert penalised_optimum(cmdp, 1.001 * norm) == pytest.approx(float(solution.value), abs=1e-8)
    assert penalised_optimum(cmdp, 0.9 * norm) > float(solution.value) + 1e-4


def test_the_solvers_own_multipliers_need_not_be_least() -> None:
    """`fixed_cost` allows lambda + s (1, 1)."""
    cmdp = cp.envs.make("fixed_cost", instances=8)
    solution = cp.solve(cmdp)
    assert (solution.multipliers.max(axis=0) > least_multiplier_norm(cmdp, solution) + 0.1).any()


def test_by_hand() -> None:
    """Reward 1 at cost 1/8 with threshold 0: Lambda = 8. A threshold that does not bind: Lambda = 0."""
    reward, cost = np.array([[[0.0, 1.0]]]), np.array([[[[0.0, 0.125]]]])
    batch = cp.stack([cp.make_cmdp(None, reward, cost, [alpha]) for alpha in (0.0, 1.0)])
    np.testing.assert_allclose(least_multiplier_norm(batch, cp.solve(batch)), [8.0, 0.0], atol=1e-6)
