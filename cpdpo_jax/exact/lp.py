"""The occupancy polytope of a CMDP and the two linear programs on it, with solver-independent certificates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

if TYPE_CHECKING:
    from cpdpo_jax.common.types import Array

GOAL = 1e-10  # the first attempt certified to this error is taken, otherwise the best attempt
OPTIMAL = 1e-9  # a dual solution this close to OPT counts as optimal
_SOLVER = {
    "primal_feasibility_tolerance": 1e-10,
    "dual_feasibility_tolerance": 1e-10,
}  # the tightest that HiGHS accepts
# HiGHS drops matrix entries below 1e-9, so that rare transitions would vanish, and its tolerances are absolute: rows
# and variables are scaled up by powers of 2. A threshold at the very minimum may need a slack of the order of rounding.
_ATTEMPTS = (  # rows, variables, slack
    (2.0**16, 2.0**10, 0.0),
    (2.0**20, 1.0, 0.0),
    (2.0**20, 2.0**10, 0.0),
    (2.0**14, 2.0**6, 0.0),
    (2.0**10, 1.0, 0.0),
    (2.0**14, 2.0**6, 1e-14),
    (2.0**10, 1.0, 1e-13),
    (1.0, 1.0, 1e-10),
)


class Model(NamedTuple):
    """The input of `solve` for one CMDP: plain arrays."""

    transition: np.ndarray  # [L-1, S, A, S]
    reward: np.ndarray  # [L, S, A]
    cost: np.ndarray  # [M, L, S, A]
    threshold: np.ndarray  # [M]
    action_mask: np.ndarray  # [L, S, A]
    name: str


class Program:
    """The occupancy polytope of an instance, over its real pairs only, and the linear programs on it."""

    def __init__(self, model: Model):
        self.model: Model = model
        mask = model.action_mask
        self.pairs: tuple[np.ndarray, ...] = np.nonzero(mask)  # one variable each
        k, x, a = self.pairs
        row = np.full(mask.shape[:2], -1)
        real = mask.any(axis=2)
        row[real] = np.arange(real.sum())  # one flow equation for each real state
        n = len(k)
        inner = np.flatnonzero(k < mask.shape[0] - 1)
        p = model.transition[k[inner], x[inner], a[inner]]  # [pairs with a next layer, S]
        source, target = np.nonzero(p)
        rows = np.concatenate([row[k, x], row[k[inner][source] + 1, target]])
        columns = np.concatenate([np.arange(n), inner[source]])
        entries = np.concatenate([np.ones(n), -p[source, target]])
        self.flow: Any = sparse.csr_array((entries, (rows, columns)), shape=(int(real.sum()), n))
        self.start: np.ndarray = np.zeros(int(real.sum()))
        self.start[row[0, 0]] = 1.0
        self.cost: np.ndarray = model.cost[:, k, x, a]  # [M, n]

    def optimum(self, shortfall: float) -> Iterator[tuple[Any, ...]]:
        """Attempts at OPT: error, value, policy `[L, S, A]`, multipliers `[M]`, gap, violation.

        An attempt with slack also receives the shortfall [-rho]^+.
        """
        model = self.model
        objective = -model.reward[self.pairs]
        for q, multipliers in self._attempts(objective, self.cost, self.flow, (0, None), shortfall):
            policy = self.policy(q, lagrangian(model, multipliers))
            value, *costs = evaluate(model.transition, policy, np.concatenate([model.reward[None], model.cost]))
            dual, _ = plan(model.transition, lagrangian(model, multipliers), model.action_mask)
            gap = dual + float(multipliers @ model.threshold) - value
            violation = max(0.0, float(np.max(np.array(costs) - model.threshold)))
            yield max(abs(gap), violation), value, policy, multipliers, gap, violation

    def slater(self) -> Iterator[tuple[Any, ...]]:
        """Attempts at rho: error (by the dual bound min_w max_pi w.(alpha - V(g)), w a distribution), rho, policy."""
        model = self.model
        m, n = self.cost.shape
        objective = np.append(np.zeros(n), -1.0)
        upper = np.column_stack([self.cost, np.ones(m)])
        flow = sparse.hstack([self.flow, sparse.csr_array((len(self.start), 1))], format="csr")
        bounds = np.column_stack([np.append(np.zeros(n), -np.inf), np.full(n + 1, np.inf)])
        for q, weights in self._attempts(objective, upper, flow, bounds):
            weights = weights / weights.sum() if weights.sum() > 0 else np.full(m, 1 / m)
            payoff = -np.tensordot(weights, model.cost, 1)
            policy = self.policy(q[:-1], payoff)
            margin = float(np.min(model.threshold - evaluate(model.transition, policy, model.cost)))
            bound = plan(model.transition, payoff, model.action_mask)[0] + float(weights @ model.threshold)
            yield bound - margin, margin, policy

    def least_multiplier_norm(self, optimum: float) -> float:
        """min s such that some V and 0 <= lambda_i <= s are optimal in the dual program.

        That is, V(x) >= r - lambda.g + P V at every pair, and V(x_0) + lambda.alpha <= OPT.
        """
        m, n = self.cost.shape
        dual = sparse.hstack([-self.flow.T, -sparse.csr_array(self.cost.T), sparse.csr_array((n, 1))])
        ends = sparse.csr_array(np.concatenate([self.start, self.model.threshold, [0.0]])[None])
        below = sparse.hstack([sparse.csr_array((m, len(self.start))), sparse.eye_array(m), -np.ones((m, 1))])
        upper = np.concatenate([-self.model.reward[self.pairs], [optimum + OPTIMAL], np.zeros(m)])
        bounds = [(None, None)] * len(self.start) + [(0, None)] * (m + 1)
        objective = np.append(np.zeros(len(self.start) + m), 1.0)
        stacked = sparse.vstack([dual, ends, below], format="csr")
        # with the tolerances of `_SOLVER` HiGHS finds no solution for `box`
        result = linprog(objective, stacked, upper, bounds=bounds, method="highs-ds")
        if result.x is None:
            raise RuntimeError(f"HiGHS finds no optimal multipliers of {self.model.name}; please report the instance.")
        return float(result.x[-1])

    def _attempts(
        self, objective: np.ndarray, upper: np.ndarray, flow: Any, bounds: Any, shortfall: float = 0.0
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The solver's variables and multipliers `[M]` for each scaling that it can solve."""
        for rows, variables, slack in _ATTEMPTS:
            b_ub = rows * variables * (self.model.threshold + (slack + shortfall if slack else 0.0))
            b_eq = rows * variables * self.start
            options = {**_SOLVER, "maxiter": 1000 + 100 * sum(flow.shape)}
            result = linprog(
                objective, rows * upper, b_ub, rows * flow, b_eq, bounds, method="highs-ds", options=options
            )
            if result.x is not None and result.ineqlin.marginals is not None:
                yield result.x / variables, np.maximum(0.0, -rows * result.ineqlin.marginals)

    def policy(self, occupancy: np.ndarray, payoff: np.ndarray) -> np.ndarray:
        """pi(a|x) = q(x,a) / sum_a q(x,a); in states that are never visited, the best action for the payoff."""
        q = np.zeros(self.model.action_mask.shape)
        q[self.pairs] = np.maximum(0.0, occupancy)
        total = q.sum(axis=2, keepdims=True)
        _, greedy = plan(self.model.transition, payoff, self.model.action_mask)
        visited = total > 1e-13
        return np.where(visited, q / np.where(visited, total, 1.0), greedy)


def lagrangian(model: Model, multipliers: np.ndarray) -> np.ndarray:
    """r - sum_i lambda_i g_i, `[L, S, A]` (Section 3.2, without the constant)."""
    return model.reward - np.tensordot(multipliers, model.cost, 1)


def evaluate(transition: Array, policy: Array, payoff: Array) -> np.ndarray:
    """V^pi(x_0) of K payoffs, `[K, L, S, A]` -> `[K]`: V_k(x) = sum_a pi(a|x) (v(x,a) + P(.|x,a) V_{k+1})."""
    transition, policy, payoff = np.asarray(transition), np.asarray(policy), np.asarray(payoff)
    value = (policy[-1] * payoff[:, -1]).sum(axis=-1)
    for k in reversed(range(len(transition))):
        value = (policy[k] * (payoff[:, k] + np.einsum("xay,cy->cxa", transition[k], value))).sum(axis=-1)
    return value[:, 0]


def occupancy(transition: Array, policy: Array) -> np.ndarray:
    """q(x,a), the probability that an episode visits the pair: `[L-1, S, A, S]`, `[L, S, A]` -> `[L, S, A]`.

    Forwards: q_0(x_0,a) = pi(a|x_0), q_{k+1}(y,a) = pi(a|y) sum_{x,b} q_k(x,b) P(y|x,b).
    """
    transition, policy = np.asarray(transition), np.asarray(policy)
    visited = [np.eye(policy.shape[1])[0][:, None] * policy[0]]
    for k in range(len(transition)):
        visited.append(np.einsum("xa,xay->y", visited[-1], transition[k])[:, None] * policy[k + 1])
    return np.array(visited)


def plan(transition: Array, payoff: Array, mask: Array) -> tuple[float, np.ndarray]:
    """max_pi V^pi(payoff) at x_0 and a deterministic maximiser `[L, S, A]`, by backward induction."""
    transition, payoff, mask = np.asarray(transition), np.asarray(payoff), np.asarray(mask)
    policy = np.zeros(payoff.shape)
    value = np.zeros(payoff.shape[1])
    for k in reversed(range(len(payoff))):
        future = transition[k] @ value if k < len(transition) else 0.0
        q = np.where(mask[k], payoff[k] + future, -np.inf)
        real = mask[k].any(axis=1)
        policy[k, real, q[real].argmax(axis=1)] = 1.0
        value = np.where(real, q.max(axis=1), 0.0)
    return float(value[0]), policy


def until_certified(attempts: Iterator[tuple[Any, ...]], model: Model) -> list[tuple[Any, ...]]:
    """The attempts, each preceded by its error, up to the first certified attempt."""
    solutions = []
    for attempt in attempts:
        solutions.append(attempt)
        if attempt[0] <= GOAL:
            break
    if not solutions:
        raise RuntimeError(f"HiGHS cannot solve {model.name} at any scaling; please report the instance.")
    return solutions
