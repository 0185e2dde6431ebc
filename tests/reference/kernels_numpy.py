"""The kernels once more, in plain Python loops and float64, for the tests to compare with.

Nothing here comes from the package. One problem at a time, no batch axes, except where a function says so.
The inner problem, max or min of p.f over {lower <= p <= upper, sum p = 1}, is solved in two ways that know no
closed form: as a linear programme (HiGHS), and by listing every vertex of the set.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array, eye_array, kron

# rows lower [n, S], upper [n, S], f [n, S], maximize -> the n extremes
Solver = Callable[[np.ndarray, np.ndarray, np.ndarray, bool], np.ndarray]

# The tightest that HiGHS accepts: its defaults (1e-7) would not carry a comparison at 1e-10.
EXACT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


# --- the inner problem -----------------------------------------------------------------------------------------------


def extremes_lp(lower: np.ndarray, upper: np.ndarray, f: np.ndarray, maximize: bool) -> np.ndarray:
    """All n problems in one linear programme: they share no variable, so its optimum is optimal in each."""
    n, width = f.shape
    if n == 0:
        return np.zeros(0)
    sign = -1.0 if maximize else 1.0
    result = linprog(
        sign * f.ravel(),
        A_eq=kron(eye_array(n), np.ones((1, width)), format="csr"),
        b_eq=np.ones(n),
        bounds=np.stack([lower.ravel(), upper.ravel()], axis=1),
        method="highs",
        options=EXACT,
    )
    assert result.status == 0, result.message
    return np.sum(result.x.reshape(n, width) * f, axis=1)


@cache
def _patterns(width: int) -> tuple[np.ndarray, np.ndarray]:
    """Which coordinate is free and which of the others sit at their upper bound, for every candidate vertex."""
    free, at_upper = [], []
    for i in range(width):
        for others in itertools.product((0.0, 1.0), repeat=width - 1):
            free.append(i)
            at_upper.append((*others[:i], 0.0, *others[i:]))
    return np.array(free), np.array(at_upper)


def vertices(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """[n, S]: every point of the set with all coordinates but one at a bound (its vertices are among them)."""
    free, at_upper = _patterns(len(lower))
    points = lower + at_upper * (upper - lower)
    rows = np.arange(len(free))
    points[rows, free] = 0.0
    last = 1.0 - points.sum(axis=1)
    feasible = (last >= lower[free] - 1e-12) & (last <= upper[free] + 1e-12)
    points[rows, free] = last
    assert feasible.any(), "empty set"
    return points[feasible]


def extremes_vertices(lower: np.ndarray, upper: np.ndarray, f: np.ndarray, maximize: bool) -> np.ndarray:
    """The n problems one by one: a linear function takes its extremes over a polytope at a vertex."""
    known: dict[bytes, np.ndarray] = {}
    answers = np.zeros(len(f))
    for i in range(len(f)):
        key = lower[i].tobytes() + upper[i].tobytes()
        if key not in known:
            known[key] = vertices(lower[i], upper[i])
        values = known[key] @ f[i]
        answers[i] = values.max() if maximize else values.min()
    return answers


# --- values ----------------------------------------------------------------------------------------------------------


def action_value(transition: np.ndarray, policy: np.ndarray, payoff: np.ndarray) -> np.ndarray:
    """Q [K, L, S, A], by the definition."""
    n_layers, n_states, n_actions = policy.shape
    q = np.zeros(payoff.shape)
    for i in range(payoff.shape[0]):
        for k in reversed(range(n_layers)):
            for x in range(n_states):
                for a in range(n_actions):
                    q[i, k, x, a] = payoff[i, k, x, a]
                    if k + 1 < n_layers:
                        for y in range(n_states):
                            v = sum(policy[k + 1, y, b] * q[i, k + 1, y, b] for b in range(n_actions))
                            q[i, k, x, a] += transition[k, x, a, y] * v
    return q


def policy_value(transition: np.ndarray, policy: np.ndarray, payoff: np.ndarray) -> np.ndarray:
    """V [K, L, S], by the definition."""
    q = action_value(transition, policy, payoff)
    v = np.zeros(q.shape[:3])
    for i, k, x, a in np.ndindex(*q.shape):
        v[i, k, x] += policy[k, x, a] * q[i, k, x, a]
    return v


def occupancy(transition: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """q [L, S]: the probability of reaching each state from state 0 of layer 0, forwards."""
    n_layers, n_states, n_actions = policy.shape
    q = np.zeros((n_layers, n_states))
    q[0, 0] = 1.0
    for k in range(n_layers - 1):
        for x, a, y in np.ndindex(n_states, n_actions, n_states):
            q[k + 1, y] += q[k, x] * policy[k, x, a] * transition[k, x, a, y]
    return q


# --- optimism --------------------------------------------------------------------------------------------------------


def occupancy_bounds(
    policy: np.ndarray, lower: np.ndarray, upper: np.ndarray, solver: Solver
) -> tuple[np.ndarray, np.ndarray]:
    """(low, up) [L, S, B] of B problems with arrays [..., B]: one backward recursion per target state.

    The batch is here only so that a solver gets many rows at a time; no row knows another. Pairs that are never
    played (policy 0) have no say and are not solved.
    """
    n_layers, n_states, n_actions, n_batch = policy.shape
    bounds = {False: np.zeros((n_layers, n_states, n_batch)), True: np.zeros((n_layers, n_states, n_batch))}
    for maximize, bound in bounds.items():
        bound[0, 0] = 1.0
        for h in range(1, n_layers):
            reach = np.zeros((n_states, n_states, n_batch))  # [target, state of the current layer, problem]
            for x in range(n_states):
                reach[x, x] = 1.0
            for k in reversed(range(h)):
                rows = [
                    (x, y, a, b)
                    for x, y, a, b in np.ndindex(n_states, n_states, n_actions, n_batch)
                    if policy[k, y, a, b] > 0.0 and (k > 0 or y == 0)
                ]
                best = solver(
                    np.array([lower[k, y, a, :, b] for _, y, a, b in rows]).reshape(-1, n_states),
                    np.array([upper[k, y, a, :, b] for _, y, a, b in rows]).reshape(-1, n_states),
                    np.array([reach[x, :, b] for x, _, _, b in rows]).reshape(-1, n_states),
                    maximize,
                )
                reach = np.zeros_like(reach)
                for (x, y, a, b), value in zip(rows, best, strict=True):
                    reach[x, y, b] += policy[k, y, a, b] * value
            bound[h] = reach[:, 0]
    return bounds[False], bounds[True]


def occupancy_bounds_flow(policy: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same bounds of one problem with no recursion: a linear programme over whole occupancy measures.

    Variables q(k, x) and z(k, x, a, y), the probability of the step: sum_y z = pi q, q(k+1, y) = sum z, and
    P = z / (pi q) in its box is lower pi q <= z <= upper pi q, which is linear because pi is given.
    """
    n_layers, n_states, n_actions = policy.shape
    q_index = np.arange(n_layers * n_states).reshape(n_layers, n_states)
    steps = (n_layers - 1, n_states, n_actions, n_states)
    z_index = q_index.size + np.arange(int(np.prod(steps))).reshape(steps)
    n_variables = q_index.size + z_index.size
    equal: list[tuple[dict[int, float], float]] = []
    below: list[dict[int, float]] = []
    for x in range(n_states):
        equal.append(({int(q_index[0, x]): 1.0}, 1.0 if x == 0 else 0.0))
    for k in range(n_layers - 1):
        for x, a in np.ndindex(n_states, n_actions):
            pi, q = policy[k, x, a], int(q_index[k, x])
            equal.append(({**{int(z): 1.0 for z in z_index[k, x, a]}, q: -pi}, 0.0))
            for y in range(n_states):
                z = int(z_index[k, x, a, y])
                below.append({q: lower[k, x, a, y] * pi, z: -1.0})
                below.append({q: -upper[k, x, a, y] * pi, z: 1.0})
        for y in range(n_states):
            equal.append(({**{int(z): 1.0 for z in z_index[k, :, :, y].ravel()}, int(q_index[k + 1, y]): -1.0}, 0.0))

    def matrix(rows: list[dict[int, float]]) -> coo_array:
        entries = [(i, j, v) for i, row in enumerate(rows) for j, v in row.items()]
        i, j, v = (np.array(column) for column in zip(*entries, strict=True))
        return coo_array((v.astype(float), (i, j)), shape=(len(rows), n_variables))

    low, up = np.zeros((n_layers, n_states)), np.zeros((n_layers, n_states))
    for h, x in np.ndindex(n_layers, n_states):
        for sign, bound in ((1.0, low), (-1.0, up)):
            objective = np.zeros(n_variables)
            objective[q_index[h, x]] = sign
            result = linprog(
                objective,
                A_ub=matrix(below).tocsr() if below else None,
                b_ub=np.zeros(len(below)) if below else None,
                A_eq=matrix([row for row, _ in equal]).tocsr(),
                b_eq=np.array([right for _, right in equal]),
                bounds=(0.0, 1.0),
                method="highs",
                options=EXACT,
            )
            assert result.status == 0, result.message
            bound[h, x] = result.x[q_index[h, x]]
    return low, up


def dilated_bonus(
    policy: np.ndarray, bonus: np.ndarray, lower: np.ndarray, upper: np.ndarray, dilation: float, solver: Solver
) -> np.ndarray:
    """B [L, S, A] of one problem; NaN at the pairs whose set is empty (the padded ones)."""
    n_layers, n_states, n_actions = policy.shape
    dilated = np.full(policy.shape, np.nan)
    for k in reversed(range(n_layers)):
        ahead = np.zeros(n_states)
        if k + 1 < n_layers:
            for y, a in np.ndindex(n_states, n_actions):
                if policy[k + 1, y, a] > 0.0:
                    ahead[y] += policy[k + 1, y, a] * dilated[k + 1, y, a]
        for x, a in np.ndindex(n_states, n_actions):
            if k + 1 == n_layers:
                dilated[k, x, a] = bonus[k, x]
            elif upper[k, x, a].sum() > 0.5:
                best = solver(lower[k, x, a][None], upper[k, x, a][None], ahead[None], True)[0]
                dilated[k, x, a] = bonus[k, x] + dilation * best
    return dilated


def exploration_bonus(policy: np.ndarray, low: np.ndarray, up: np.ndarray, exploration: float) -> np.ndarray:
    """b [L, S] of PO-DB."""
    n_layers, n_states, n_actions = policy.shape
    bonus = np.zeros((n_layers, n_states))
    for k, x, a in np.ndindex(n_layers, n_states, n_actions):
        q_up, q_low = policy[k, x, a] * up[k, x], policy[k, x, a] * low[k, x]
        width = 3.0 * exploration * n_layers + n_layers * (q_up - q_low)
        bonus[k, x] += policy[k, x, a] * width / (q_up + exploration)
    return bonus


# --- dual and loss ---------------------------------------------------------------------------------------------------


def dual_max(values: np.ndarray, threshold: np.ndarray, cap: float) -> np.ndarray:
    """The multipliers [M]."""
    return np.array([cap if v > t else 0.0 for v, t in zip(values, threshold, strict=True)])


def lagrangian_loss(
    reward_upper: np.ndarray,
    cost_lower: np.ndarray,
    multipliers: np.ndarray,
    threshold: np.ndarray,
    cap: float,
    n_layers: int,
) -> np.ndarray:
    """The loss [N] of N pairs."""
    n_constraints = len(multipliers)
    loss = np.zeros(len(reward_upper))
    for j in range(len(loss)):
        penalty = sum(multipliers[i] * (cost_lower[i, j] - threshold[i] / n_layers) for i in range(n_constraints))
        loss[j] = cap * n_constraints - (reward_upper[j] - penalty)
    return loss


# --- widths ----------------------------------------------------------------------------------------------------------


def hoeffding_width(visits: np.ndarray, log_term: float) -> np.ndarray:
    """Phi and xi, of any shape."""
    width = np.zeros(visits.shape)
    for i in np.ndindex(*visits.shape):
        width[i] = min(1.0, (4.0 * log_term / max(1, int(visits[i]))) ** 0.5)
    return width


def bernstein_width(p_hat: np.ndarray, visits: np.ndarray, log_term: float) -> np.ndarray:
    """Eps [L-1, S, A, S]."""
    width = np.zeros(p_hat.shape)
    for k, x, a, y in np.ndindex(*p_hat.shape):
        n = max(1, int(visits[k, x, a]) - 1)
        width[k, x, a, y] = 2.0 * (p_hat[k, x, a, y] * log_term / n) ** 0.5 + 14.0 * log_term / (3.0 * n)
    return width


def confidence_set(
    visits: np.ndarray, transitions_count: np.ndarray, next_state_mask: np.ndarray, log_term: float
) -> tuple[np.ndarray, np.ndarray]:
    """(lower, upper) [L-1, S, A, S] of PO-DB's set."""
    lower, upper = np.zeros(transitions_count.shape), np.zeros(transitions_count.shape)
    for k, x, a, y in np.ndindex(*transitions_count.shape):
        n = int(visits[k, x, a])
        if not next_state_mask[k, y]:
            continue
        if n == 0:
            lower[k, x, a, y], upper[k, x, a, y] = 0.0, 1.0
            continue
        mean = int(transitions_count[k, x, a, y]) / n
        width = 4.0 * (mean * log_term / n) ** 0.5 + 28.0 * log_term / (3.0 * n)
        lower[k, x, a, y], upper[k, x, a, y] = max(0.0, mean - width), min(1.0, mean + width)
    return lower, upper
