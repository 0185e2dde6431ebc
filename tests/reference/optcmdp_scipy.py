"""The LPs of OptCMDP and OptCMDP-bonus as SPEC section 5 states them, dense, by loops, solved by SciPy: never fast.

OptCMDP: variables z(k,x,a,y), in the last layer z(k,x,a). OptCMDP-bonus: q(k,x,a). No scaling, no change of variables,
no basis. Counts and widths are those of `baselines_numpy`.
"""

import numpy as np
from scipy.optimize import linprog

from tests.reference.baselines_numpy import Array, Counts

TIGHT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


class Answer:
    """value: of the LP, or minus the least sum of excesses if `infeasible`; `unique`: surely no other optimum."""

    def __init__(self, value: float, policy: Array, infeasible: bool, unique: bool) -> None:
        self.value, self.policy, self.infeasible, self.unique = value, policy, infeasible, unique


def solve(learner: str, counts: Counts, threshold: Array, fixed: Array | None = None) -> Answer:
    """The LP of a learner; with a policy `fixed` [L,S,A] only models are chosen."""
    names, objective, costs = _variables(learner, counts)
    at = {name: j for j, name in enumerate(names)}
    n, m = len(names), len(threshold)
    equal, right, below = [], [], []
    for k, x in np.argwhere(counts.real).tolist():  # what leaves a state is what comes to it
        row = np.zeros(n)
        for name, j in at.items():
            if name[:2] == (k, x):
                row[j] += 1
            if name[0] == k - 1:
                row[j] -= _arrives(learner, counts, name, x)
        equal.append(row)
        right.append(1.0 if (k, x) == (0, 0) else 0.0)
        for a in np.flatnonzero(counts.mask[k, x]):
            if fixed is None:
                continue
            row = np.zeros(n)
            for name, j in at.items():
                if name[:2] == (k, x):
                    row[j] = float(name[2] == a) - fixed[k, x, a]
            equal.append(row)
            right.append(0.0)
    if learner == "optcmdp":
        for k, x, a, y in (name for name in names if len(name) == 4):
            if counts.n[k, x, a] == 0:
                continue  # the whole simplex
            p, beta = counts.p_hat(k, x, a, y), counts.beta_p(k, x, a, y)
            all_y = np.array([float(name[:3] == (k, x, a)) for name in names])
            this = np.zeros(n)
            this[at[k, x, a, y]] = 1
            below += [(p - beta) * all_y - this, this - (p + beta) * all_y]
    above = np.array([*below, *costs])
    limit = np.concatenate([np.zeros(len(below)), threshold])
    found = linprog(-objective, above, limit, np.array(equal), right, method="highs", options=TIGHT)
    if found.status == 0:
        free = found.lower.marginals < 1e-7  # all optima are 0 elsewhere, and tight in the rows with a price
        tight = np.vstack([np.array(equal)[:, free], above[found.ineqlin.marginals < -1e-7][:, free]])
        unique = bool(np.linalg.matrix_rank(tight, tol=1e-7) == free.sum())
        return Answer(-found.fun, _policy(counts, names, found.x), False, unique)
    assert found.status == 2
    excess = np.vstack([np.zeros((len(below), m)), -np.eye(m)])
    padded = np.hstack([np.array(equal), np.zeros((len(equal), m))])
    least = linprog(
        np.append(np.zeros(n), np.ones(m)), np.hstack([above, excess]), limit, padded, right, method="highs",
        options=TIGHT,
    )  # fmt: skip
    assert least.status == 0
    return Answer(-least.fun, _policy(counts, names, least.x[:n]), True, False)


def _variables(learner: str, counts: Counts) -> tuple[list[tuple[int, ...]], Array, list[Array]]:
    """Their names, and the optimistic reward and costs of each."""
    names: list[tuple[int, ...]] = []
    for k, x, a in np.argwhere(counts.mask).tolist():
        after = counts.next_states(k)
        names += [(k, x, a, y) for y in after] if after and learner == "optcmdp" else [(k, x, a)]

    def payoff(i: int, name: tuple[int, ...]) -> float:
        k, x, a = name[:3]
        sign = 1 if i == 0 else -1
        if learner == "optcmdp":
            return min(1.0, max(0.0, counts.mean(i, k, x, a) + sign * counts.beta_r(k, x, a)))
        return counts.mean(i, k, x, a) + sign * (counts.beta_r(k, x, a) + counts.transition_bonus(k, x, a))

    values = [np.array([payoff(i, name) for name in names]) for i in range(len(counts.payoffs))]
    return names, values[0], values[1:]


def _arrives(learner: str, counts: Counts, name: tuple[int, ...], y: int) -> float:
    """The share of a variable that comes to state y of the next layer."""
    if learner == "optcmdp":
        return float(name[3] == y)
    k, x, a = name
    return counts.p_hat(k, x, a, y) if counts.n[k, x, a] else 1 / len(counts.next_states(k))


def _policy(counts: Counts, names: list[tuple[int, ...]], solution: Array) -> Array:
    """Of the states reached; 0 elsewhere."""
    q = np.zeros(counts.mask.shape)
    for name, value in zip(names, solution, strict=True):
        q[name[:3]] += max(0.0, value)
    total = q.sum(axis=2, keepdims=True)
    return np.where(total > 1e-9, q / np.maximum(total, 1e-9), 0)
