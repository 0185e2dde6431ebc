"""Plain-loop NumPy/SciPy (float64) transcription of OptPess-LP (Liu et al. 2021): docs/rivals.md, section 5.

H = L layers in which actions are taken, S padded states, A padded actions, M constraints; state 0 of layer 0 is x_0, x_L
is implicit, a state is real if it has an allowed action. Given: a safe policy pi_b and its costs C_b below alpha. Every
episode, with the counts from before it: pi_b if its pessimistic cost is not surely below (alpha + C_b) / 2, else the
policy of an LP over q(k,x,a) with pessimistic costs and a reward that makes up for them.

Symbols: n(x,a), c(x,a,y) counts; i = ln(32 |X|^2 H T / delta); w = min(L - k, beta_r + |X_{k+1}| H beta_p), L - k if never
seen; g~ = g_hat + w, r~ = r_hat + (1 + `compensation`) w.
"""

import numpy as np
from scipy.optimize import linprog

Array = np.ndarray
Hyper = dict[str, float]

TIGHT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


def theory_constants(mask: Array, threshold: Array, safe_cost: Array) -> Hyper:
    """compensation = 4H / (alpha - C_b), the smallest gap."""
    gap = float(np.min(np.asarray(threshold) - safe_cost))
    return {"compensation": 4 * mask.shape[0] / gap, "transition_confidence": 1.0, "payoff_confidence": 1.0}


class Counts:
    """n, c and the sums of samples; the model and the payoffs of the LP made of them."""

    def __init__(self, mask: Array, n_constraints: int, hyper: Hyper, episodes: int, delta: float) -> None:
        self.mask, self.hyper = mask, hyper
        self.real: Array = np.asarray(mask.any(axis=-1))
        self.horizon, self.n_states, self.n_actions = mask.shape
        self.n = np.zeros(mask.shape, int)
        self.c = np.zeros((self.horizon - 1, self.n_states, self.n_actions, self.n_states), int)
        self.payoffs = np.zeros((1 + n_constraints, *mask.shape))
        n_real = 1 + int(self.real.sum())
        self.lg = np.log(32 * n_real**2 * self.horizon * episodes / delta)

    def next_states(self, k: int) -> list[int]:
        """The real states of layer k + 1 (none after the last layer)."""
        return [y for y in range(self.n_states) if self.real[k + 1, y]] if k + 1 < self.horizon else []

    def p_hat(self, k: int, x: int, a: int, y: int) -> float:
        """Uniform over the next layer for a pair never seen."""
        n = self.n[k, x, a]
        return self.c[k, x, a, y] / n if n else 1 / len(self.next_states(k))

    def width(self, k: int, x: int, a: int) -> float:
        n = self.n[k, x, a]
        if n == 0:
            return self.horizon - k
        beta_r = np.sqrt(self.hyper["payoff_confidence"] * self.lg / n)
        beta_p = np.sqrt(self.hyper["transition_confidence"] * self.lg / n)
        return min(self.horizon - k, beta_r + len(self.next_states(k)) * self.horizon * beta_p)

    def payoff(self, i: int, k: int, x: int, a: int) -> float:
        """r~ (i = 0) or g~_i."""
        mean, w = self.payoffs[i, k, x, a] / max(1, self.n[k, x, a]), self.width(k, x, a)
        return mean + (1 + self.hyper["compensation"]) * w if i == 0 else mean + w

    def add(self, states: list[int], actions: list[int], samples: Array) -> None:
        """Count an episode; samples [1+M,L]."""
        for k in range(self.horizon):
            self.n[k, states[k], actions[k]] += 1
            self.payoffs[:, k, states[k], actions[k]] += samples[:, k]
            if k + 1 < self.horizon:
                self.c[k, states[k], actions[k], states[k + 1]] += 1


def evaluate(counts: Counts, policy: Array) -> Array:
    """The values [1+M] of r~ and g~ at x_0 under P_hat; nothing is truncated."""
    values = np.zeros((len(counts.payoffs), counts.n_states))
    for k in reversed(range(counts.horizon)):
        new = np.zeros(values.shape)
        for x, a in np.argwhere(counts.mask[k]).tolist():
            for i in range(len(values)):
                ahead = sum(counts.p_hat(k, x, a, y) * values[i, y] for y in counts.next_states(k))
                new[i, x] += policy[k, x, a] * (counts.payoff(i, k, x, a) + ahead)
        values = new
    return values[:, 0]


class Answer:
    """Of the LP: value, policy (0 where no mass comes), prices of the constraints; `unique`: surely no other optimum."""

    def __init__(self, value: float, policy: Array, prices: Array, unique: bool) -> None:
        self.value, self.policy, self.prices, self.unique = value, policy, prices, unique


def solve(counts: Counts, threshold: Array) -> Answer | None:
    """max sum q r~ with the flow of P_hat and sum q g~_i <= alpha_i; None if infeasible."""
    pairs = [tuple(pair) for pair in np.argwhere(counts.mask).tolist()]
    payoffs = np.array([[counts.payoff(i, *pair) for pair in pairs] for i in range(len(counts.payoffs))])
    equal, right = [], []
    for k, x in np.argwhere(counts.real).tolist():
        row = np.zeros(len(pairs))
        for j, (layer, state, action) in enumerate(pairs):
            if (layer, state) == (k, x):
                row[j] += 1
            if layer == k - 1:
                row[j] -= counts.p_hat(layer, state, action, x)
        equal.append(row)
        right.append(1.0 if (k, x) == (0, 0) else 0.0)
    found = linprog(-payoffs[0], payoffs[1:], threshold, np.array(equal), right, method="highs", options=TIGHT)
    if found.status != 0:
        assert found.status == 2
        return None
    free = found.lower.marginals < 1e-7  # all optima are 0 elsewhere, and tight in the rows with a price
    tight = np.vstack([np.array(equal)[:, free], payoffs[1:][found.ineqlin.marginals < -1e-7][:, free]])
    unique = bool(np.linalg.matrix_rank(tight, tol=1e-7) == free.sum())
    q = np.zeros(counts.mask.shape)
    for pair, value in zip(pairs, found.x, strict=True):
        q[pair] = max(0.0, value)
    total = q.sum(axis=2, keepdims=True)
    policy = np.where(total > 1e-9, q / np.maximum(total, 1e-9), 0)
    return Answer(-found.fun, policy, -found.ineqlin.marginals, unique)


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
    safe_cost: Array,
    played: Array | None = None,
) -> dict[str, Array]:
    """len(uniforms) episodes; `episodes` is the T of the constants. Uniforms [n,L,3+M]: action, next state, payoffs.

    Returns, per episode: states, actions, policies, multipliers (prices of the LP), fallback, value, unique. With `played`
    [n,L,S,A] those policies make the trajectories (an LP has ties), and `attained` [1+M] is what each has in the LP.
    """
    mask = np.asarray(action_mask, bool)
    payoffs = np.concatenate([reward[None], cost])
    counts = Counts(mask, len(threshold), hyper, episodes, delta)
    log = []
    for t, u in enumerate(uniforms):
        safe = bool((evaluate(counts, safe_policy)[1:] < (np.asarray(threshold) + safe_cost) / 2).all())
        answer = solve(counts, threshold) if safe else None
        if answer is None:
            answer, fallback = Answer(np.nan, safe_policy, np.zeros(len(threshold)), True), True
        else:
            fallback = False
        policy = np.where(answer.policy.any(axis=2, keepdims=True), answer.policy, safe_policy)
        used = policy if played is None else played[t]
        row = {"policies": policy, "multipliers": answer.prices, "fallback": fallback, "value": answer.value}
        row |= {"unique": answer.unique, "attained": evaluate(counts, used)}
        states, actions, x = [], [], 0
        for k in range(counts.horizon):
            states.append(x)
            actions.append(draw(used[k, x], u[k, 0]))
            if k + 1 < counts.horizon:
                x = draw(transition[k, x, actions[k]], u[k, 1])
        samples = [[float(u[k, 2 + i] < mean[k, states[k], actions[k]]) for k in range(counts.horizon)]
                   for i, mean in enumerate(payoffs)]  # fmt: skip
        counts.add(states, actions, np.array(samples))
        log.append(row | {"states": states, "actions": actions})
    return {name: np.array([row[name] for row in log]) for name in log[0]}
