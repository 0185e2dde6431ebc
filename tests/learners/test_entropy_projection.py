"""The projection with cost rows, and bounds over a confidence set, against generic solvers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog, minimize

from cpdpo_jax.learners.entropy_projection import Projection
from cpdpo_jax.learners.occupancy_measures import least_cost, upper_occupancies


def random_projection(seed: int, m: int) -> Projection:
    """Weights between e^-3 and e^3, boxes round random rows, some whole; a padded state and a missing action."""
    rng, shape = np.random.default_rng(seed), (3, 3, 2)
    mask = np.ones(shape, bool)
    mask[0, 1:] = mask[1, 2] = mask[2, 0, 1] = False
    real = np.asarray(mask.any(axis=2))[1:, None, None]
    p = rng.dirichlet(np.ones(3), (2, 3, 2)) * real
    p /= p.sum(axis=3, keepdims=True)
    width = np.where(rng.random((2, 3, 2, 1)) < 0.3, 1.0, rng.uniform(0.01, 0.3, (2, 3, 2, 1)))
    lo, hi = np.maximum(p - width, 0) * real, np.minimum(p + width, 1) * real
    weights = rng.uniform(-3, 3, (2, 3, 2, 3)), rng.uniform(-3, 3, (3, 2))
    return Projection(*weights, lo, hi, mask, rng.uniform(-0.3, 1, (m, *shape)), rng.uniform(0.3, 1.3, m))


def as_program(problem: Projection) -> tuple[list[Any], dict[str, Any]]:
    """The triples, and the feasible set as rows over them, as SciPy's `linprog` takes it."""
    mask, last = problem.mask, len(problem.mask) - 1
    names: list[Any] = [
        (k, x, a, y)
        for k, x, a in np.argwhere(mask).tolist()
        for y in ([0] if k == last else np.flatnonzero(mask[k + 1].any(axis=1)).tolist())
    ]
    equal = [[float(name[0] == 0) for name in names]]
    for k, x in np.argwhere(np.asarray(mask.any(axis=2))).tolist()[1:]:
        equal.append([float(j[:2] == (k, x)) - float((j[0], j[3]) == (k - 1, x)) for j in names])
    below = []
    for i, name in enumerate(names):
        if name[0] < last:
            every, this = np.array([float(j[:3] == name[:3]) for j in names]), np.eye(len(names))[i]
            below += [this - problem.hi[name] * every, problem.lo[name] * every - this]
    ends = np.append(np.zeros(len(below)), problem.threshold)
    below += [[problem.cost[(i, *name[:3])] for name in names] for i in range(len(problem.cost))]
    right = np.append(1.0, np.zeros(len(equal) - 1))
    return names, {"A_ub": np.array(below), "b_ub": ends, "A_eq": np.array(equal), "b_eq": right}


@pytest.mark.parametrize("m", [1, 2])
def test_the_projection_with_cost_rows_is_that_of_a_generic_solver(m: int) -> None:
    """SLSQP on the triples, to 1e-6; and no solution is found exactly where SciPy's LP has none."""
    binding, impossible = 0, 0
    for seed in range(16):
        problem = random_projection(seed, m)
        names, rows = as_program(problem)
        start = linprog(np.zeros(len(names)), **rows, bounds=(0, None))
        found = problem.solve()
        if start.status == 2:
            assert found.residual == np.inf
            impossible += 1
            continue
        assert found.residual < 1e-10
        log_weight = np.array([problem.log_weight[j] if j[0] < 2 else problem.last[j[1:3]] for j in names])
        slsqp: Any = minimize(
            lambda q, w=log_weight: (q * (np.log(q) - w) - q).sum(),
            np.maximum(start.x, 1e-3),
            jac=lambda q, w=log_weight: np.log(q) - w,
            bounds=[(1e-12, 1)] * len(names),
            constraints=[
                {"type": "eq", "fun": lambda q, r=rows: r["A_eq"] @ q - r["b_eq"], "jac": lambda q, r=rows: r["A_eq"]},
                {
                    "type": "ineq",
                    "fun": lambda q, r=rows: r["b_ub"] - r["A_ub"] @ q,
                    "jac": lambda q, r=rows: -r["A_ub"],
                },
            ],
            method="SLSQP",
            options={"maxiter": 200, "ftol": 1e-14},
        )
        own = [found.pairs[j[:3]] * (found.conditional[j] if j[0] < 2 else 1.0) for j in names]
        np.testing.assert_allclose(own, slsqp.x, rtol=0, atol=1e-6)
        binding += (found.multipliers > 0).sum()
    assert binding >= 4
    assert impossible >= (2 if m == 2 else 0)


def test_rows_without_a_cost_change_nothing() -> None:
    """The negative control of the row: thresholds out of reach give the projection without rows, tight ones do not."""
    problem = random_projection(1, 1)
    inside = problem.log_weight, problem.last, problem.lo, problem.hi, problem.mask
    without = Projection(*inside).solve().pairs
    np.testing.assert_allclose(Projection(*inside, problem.cost, np.full(1, 3.0)).solve().pairs, without, atol=1e-12)
    assert np.abs(problem.solve().pairs - without).max() > 0.01


@pytest.mark.parametrize("seed", range(3))
def test_bounds_over_the_set_are_those_of_linear_programs(seed: int) -> None:
    """The largest probability of each state under a policy, and the least cost of all policies."""
    problem = random_projection(seed, 1)
    names, rows = as_program(problem)
    rows = {"A_ub": rows["A_ub"][:-1], "b_ub": rows["b_ub"][:-1], "A_eq": rows["A_eq"], "b_eq": rows["b_eq"]}
    cost = [problem.cost[0][j[:3]] for j in names]
    least = least_cost(problem.lo, problem.hi, problem.mask, problem.cost[0])
    assert least == pytest.approx(linprog(cost, **rows, bounds=(0, None)).fun, abs=1e-9)

    policy = np.random.default_rng(seed).random(problem.mask.shape) * problem.mask
    policy /= np.maximum(policy.sum(axis=2, keepdims=True), 1e-300)
    played = []  # q(x,a) - pi(a|x) q(x) = 0
    for k, x, a in np.argwhere(problem.mask).tolist():
        played.append([float(j[:3] == (k, x, a)) - policy[k, x, a] * float(j[:2] == (k, x)) for j in names])
    rows |= {"A_eq": np.vstack([rows["A_eq"], played]), "b_eq": np.append(rows["b_eq"], np.zeros(len(played)))}
    bounds = upper_occupancies(problem.lo, problem.hi, policy)
    for k, x in np.argwhere(problem.mask.any(axis=2)).tolist():
        there = [-float(j[:2] == (k, x)) for j in names]
        assert bounds[k, x] == pytest.approx(-linprog(there, **rows, bounds=(0, None)).fun, abs=1e-9)
