"""Plain-loop NumPy/SciPy (float64) transcription of DOPE (Bura et al. 2022): docs/rivals.md, section 6.

H = L layers in which actions are taken, S padded states, A padded actions, M constraints; state 0 of layer 0 is x_0, x_L
is implicit, a state is real if it has an allowed action. Given: a safe policy pi_b and its costs C_b below alpha. Every
episode, with the counts from before it: pi_b at the start or if the LP is infeasible, else the policy of the extended LP
over z(k,x,a,y) (z(k,x,a) in the last layer) with pessimistic costs and a reward that makes up for them.

Symbols: n(x,a), c(x,a,y) counts; i = ln(6 |X|^2 H T / delta); D = H sum_y beta_p(y); w = min(L - k, beta_r + D),
u = min(L - k, 3 beta_r + D), both L - k if never seen; g~ = g_hat + w, r~ = r_hat + `compensation` u.
"""

import numpy as np
from scipy.optimize import linprog

Array = np.ndarray
Hyper = dict[str, float]
Name = tuple[int, ...]

TIGHT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


def theory_constants(mask: Array, threshold: Array, safe_cost: Array) -> Hyper:
    """H / gap and |X|^2 |A| H^3 / gap^2, the smallest gap alpha - C_b."""
    gap, horizon = float(np.min(np.asarray(threshold) - safe_cost)), mask.shape[0]
    n_states, n_actions = 1 + int(mask.any(axis=-1).sum()), int(mask.sum(axis=-1).max())
    start = n_states**2 * n_actions * horizon**3 / gap**2
    confidence = {"transition_confidence": 1.0, "payoff_confidence": 1.0}
    return {"compensation": horizon / gap, "safe_episodes": start} | confidence


class Counts:
    """n, c and the sums of samples; the widths and the payoffs of the LP made of them."""

    def __init__(self, mask: Array, n_constraints: int, hyper: Hyper, episodes: int, delta: float) -> None:
        self.mask, self.hyper = mask, hyper
        self.real: Array = np.asarray(mask.any(axis=-1))
        self.horizon, self.n_states, self.n_actions = mask.shape
        self.n = np.zeros(mask.shape, int)
        self.c = np.zeros((self.horizon - 1, self.n_states, self.n_actions, self.n_states), int)
        self.payoffs = np.zeros((1 + n_constraints, *mask.shape))
        n_real = 1 + int(self.real.sum())
        self.lg = np.log(6 * n_real**2 * self.horizon * episodes / delta)

    def next_states(self, k: int) -> list[int]:
        """The real states of layer k + 1 (none after the last layer)."""
        return [y for y in range(self.n_states) if self.real[k + 1, y]] if k + 1 < self.horizon else []

    def p_hat(self, k: int, x: int, a: int, y: int) -> float:
        return self.c[k, x, a, y] / max(1, self.n[k, x, a])

    def beta_p(self, k: int, x: int, a: int, y: int) -> float:
        p, n = self.p_hat(k, x, a, y), max(1, self.n[k, x, a])
        lg = self.hyper["transition_confidence"] * self.lg
        return 2 * np.sqrt(p * (1 - p) * lg / n) + 14 / 3 * lg / n

    def payoff(self, i: int, k: int, x: int, a: int) -> float:
        """r~ (i = 0) or g~_i."""
        n, most = self.n[k, x, a], self.horizon - k
        factor = self.hyper["compensation"] if i == 0 else 1.0
        if n == 0:
            return factor * most
        beta_r = 2 * np.sqrt(self.hyper["payoff_confidence"] * self.lg / n)
        spread = self.horizon * sum(self.beta_p(k, x, a, y) for y in self.next_states(k))
        return self.payoffs[i, k, x, a] / n + factor * min(most, (3 if i == 0 else 1) * beta_r + spread)

    def add(self, states: list[int], actions: list[int], samples: Array) -> None:
        """Count an episode; samples [1+M,L]."""
        for k in range(self.horizon):
            self.n[k, states[k], actions[k]] += 1
            self.payoffs[:, k, states[k], actions[k]] += samples[:, k]
            if k + 1 < self.horizon:
                self.c[k, states[k], actions[k], states[k + 1]] += 1


class Answer:
    """Of the LP: value, policy (0 where no mass comes), prices of the constraints; `unique`: surely no other optimum."""

    def __init__(self, value: float, policy: Array, prices: Array, unique: bool) -> None:
        self.value, self.policy, self.prices, self.unique = value, policy, prices, unique


def solve(counts: Counts, threshold: Array, fixed: Array | None = None) -> Answer | None:
    """The extended LP, None if infeasible; with a policy `fixed` [L,S,A] only the model is chosen."""
    names: list[Name] = []
    for k, x, a in np.argwhere(counts.mask).tolist():
        after = counts.next_states(k)
        names += [(k, x, a, y) for y in after] if after else [(k, x, a)]
    at, n = {name: j for j, name in enumerate(names)}, len(names)
    payoffs = np.array([[counts.payoff(i, *name[:3]) for name in names] for i in range(len(counts.payoffs))])
    equal, right, below = [], [], []
    for k, x in np.argwhere(counts.real).tolist():  # what leaves a state is what comes to it
        row = np.zeros(n)
        for name, j in at.items():
            row[j] += float(name[:2] == (k, x)) - float(name[0] == k - 1 and name[-1] == x)
        equal.append(row)
        right.append(1.0 if (k, x) == (0, 0) else 0.0)
        for a in np.flatnonzero(counts.mask[k, x]) if fixed is not None else ():
            share = [float(name[2] == a) - fixed[k, x, a] if name[:2] == (k, x) else 0.0 for name in names]  # pyright: ignore[reportOptionalSubscript]
            equal.append(np.array(share))
            right.append(0.0)
    for k, x, a, y in (name for name in names if len(name) == 4):
        if counts.n[k, x, a] == 0:
            continue  # the whole simplex
        p, beta = counts.p_hat(k, x, a, y), counts.beta_p(k, x, a, y)
        every = np.array([float(name[:3] == (k, x, a)) for name in names])
        this = np.zeros(n)
        this[at[k, x, a, y]] = 1
        below += [(p - beta) * every - this, this - (p + beta) * every]
    above = np.array([*below, *payoffs[1:]])
    limit = np.concatenate([np.zeros(len(below)), threshold])
    found = linprog(-payoffs[0], above, limit, np.array(equal), right, method="highs", options=TIGHT)
    if found.status != 0:
        assert found.status == 2
        return None
    free = found.lower.marginals < 1e-7  # all optima are 0 elsewhere, and tight in the rows with a price
    tight = np.vstack([np.array(equal)[:, free], above[found.ineqlin.marginals < -1e-7][:, free]])
    unique = bool(np.linalg.matrix_rank(tight, tol=1e-7) == free.sum())
    q = np.zeros(counts.mask.shape)
    for name, value in zip(names, found.x, strict=True):
        q[name[:3]] += max(0.0, value)
    total = q.sum(axis=2, keepdims=True)
    policy = np.where(total > 1e-9, q / np.maximum(total, 1e-9), 0)
    return Answer(-found.fun, policy, -found.ineqlin.marginals[len(below) :], unique)


def draw(probabilities: Array, u: float) -> int:
    """The first index whose cumulative probability exceeds u; the last possible one if rounding hides it."""
    total = 0.0
    for j, p in enumerate(probabilities):
        total += p
        if total > u:
            return j
    return int(np.flatnonzero(probabilities)[-1])


def run(
    *,
    transition: Array,
    reward: Array,
    cost: Array,
    threshold: Array,
    action_mask: Array,
    hyper: Hyper,
    episodes: int,
    delta: float,
    uniforms: Array,
    safe_policy: Array,
    played: Array | None = None,
) -> dict[str, Array]:
    """len(uniforms) episodes; `episodes` is the T of the constants. Uniforms [n,L,3+M]: action, next state, payoffs.

    Returns, per episode: states, actions, policies, multipliers (prices of the LP), fallback, value, unique. With `played`
    [n,L,S,A] those policies make the trajectories (an LP has ties), and `attained` is the value of each in the LP.
    """
    mask = np.asarray(action_mask, bool)
    payoffs = np.concatenate([reward[None], cost])
    counts = Counts(mask, len(threshold), hyper, episodes, delta)
    log = []
    for t, u in enumerate(uniforms, start=1):
        answer = solve(counts, threshold) if t > hyper["safe_episodes"] else None
        fallback = answer is None
        if answer is None:
            answer = Answer(np.nan, safe_policy, np.zeros(len(threshold)), True)
        policy = np.where(answer.policy.any(axis=2, keepdims=True), answer.policy, safe_policy)
        used, attained = policy, answer.value
        if played is not None:
            used = played[t - 1]
            fixed = None if fallback else solve(counts, threshold + 1e-9, used)
            attained = np.nan if fixed is None else fixed.value
        row = {"policies": policy, "multipliers": answer.prices, "fallback": fallback, "value": answer.value}
        states, actions, x = [], [], 0
        for k in range(counts.horizon):
            states.append(x)
            actions.append(draw(used[k, x], u[k, 0]))
            if k + 1 < counts.horizon:
                x = draw(transition[k, x, actions[k]], u[k, 1])
        samples = [[float(u[k, 2 + i] < mean[k, states[k], actions[k]]) for k in range(counts.horizon)]
                   for i, mean in enumerate(payoffs)]  # fmt: skip
        counts.add(states, actions, np.array(samples))
        log.append(row | {"unique": answer.unique, "attained": attained, "states": states, "actions": actions})
    return {name: np.array([row[name] for row in log]) for name in log[0]}
