"""Plain-loop NumPy (float64) transcription of Ghosh, Zhou and Shroff (2024), hard violation.

H = L layers in which actions are taken, S padded states, A padded actions, M constraints; state 0 of layer 0 is x_0,
x_L is implicit, a state is real if it has an allowed action. Every episode: with the counts from before it, find the
multiplier Y by bisection, play the softmax policy of Y, count.

Symbols: n(x,a), c(x,a,y) counts; lg = ln(6 |X| |A| H T / delta); a = `policy_rate`, the largest Y = `dual_cap`; b =
beta_r + H sum_y beta_p(y). Q^r and Q^g are optimistic and truncated; a pair never seen has Q^r = L - k, Q^g = 0.
"""

import numpy as np

Array = np.ndarray
Hyper = dict[str, float]

BISECTIONS = 24


def sizes(mask: Array) -> tuple[int, int]:
    """|X| with x_L, and |A|."""
    n_states = 1
    n_actions = 0
    for k, x in np.ndindex(mask.shape[:2]):
        allowed = int(mask[k, x].sum())
        n_states += allowed > 0
        n_actions = max(n_actions, allowed)
    return n_states, n_actions


def theory_constants(mask: Array, episodes: int) -> Hyper:
    """a = ln|A| sqrt(T) / (4H), Y <= sqrt(T)."""
    rate = np.log(sizes(mask)[1]) * np.sqrt(episodes) / (4 * mask.shape[0])
    return {
        "policy_rate": float(rate),
        "dual_cap": float(np.sqrt(episodes)),
        "transition_confidence": 1.0,
        "payoff_confidence": 1.0,
    }


class Counts:
    """n, c and the sums of samples; the means and widths made of them."""

    def __init__(self, mask: Array, n_constraints: int, hyper: Hyper, episodes: int, delta: float) -> None:
        self.mask = mask
        self.real: Array = np.asarray(mask.any(axis=-1))
        self.horizon, self.n_states, self.n_actions = mask.shape
        self.n = np.zeros(mask.shape, int)
        self.c = np.zeros((self.horizon - 1, self.n_states, self.n_actions, self.n_states), int)
        self.payoffs = np.zeros((1 + n_constraints, *mask.shape))
        n_real, n_allowed = sizes(mask)
        lg = np.log(6 * n_real * n_allowed * self.horizon * episodes / delta)
        self.transition_lg = hyper["transition_confidence"] * lg
        self.payoff_lg = hyper["payoff_confidence"] * lg

    def next_states(self, k: int) -> list[int]:
        """The real states of layer k + 1 (none after the last layer)."""
        return [y for y in range(self.n_states) if self.real[k + 1, y]] if k + 1 < self.horizon else []

    def p_hat(self, k: int, x: int, a: int, y: int) -> float:
        return self.c[k, x, a, y] / max(1, self.n[k, x, a])

    def mean(self, i: int, k: int, x: int, a: int) -> float:
        return self.payoffs[i, k, x, a] / max(1, self.n[k, x, a])

    def bonus(self, k: int, x: int, a: int) -> float:
        """b = beta_r + H sum_y beta_p(y)."""
        n = max(1, self.n[k, x, a])
        total = 0.0
        for y in self.next_states(k):
            p = self.p_hat(k, x, a, y)
            total += 2 * np.sqrt(p * (1 - p) * self.transition_lg / n) + 14 / 3 * self.transition_lg / n
        return np.sqrt(self.payoff_lg / n) + self.horizon * total

    def add(self, states: list[int], actions: list[int], samples: Array) -> None:
        """Count an episode; samples [1+M,L]."""
        for k in range(self.horizon):
            self.n[k, states[k], actions[k]] += 1
            self.payoffs[:, k, states[k], actions[k]] += samples[:, k]
            if k + 1 < self.horizon:
                self.c[k, states[k], actions[k], states[k + 1]] += 1


def softmax_pass(counts: Counts, bonuses: Array, rate: float, multiplier: float) -> tuple[Array, Array]:
    """The softmax policy [L,S,A] of the multiplier Y, and the optimistic values [1+M] of reward and costs at x_0."""
    policy = np.zeros(counts.mask.shape)
    n_payoffs = len(counts.payoffs)
    values = np.zeros((n_payoffs, counts.n_states))
    for k in reversed(range(counts.horizon)):
        new = np.zeros((n_payoffs, counts.n_states))
        for x in np.flatnonzero(counts.real[k]).tolist():
            allowed = np.flatnonzero(counts.mask[k, x]).tolist()
            q = np.zeros((n_payoffs, len(allowed)))
            for j, a in enumerate(allowed):
                if counts.n[k, x, a] == 0:
                    q[0, j] = counts.horizon - k
                    continue
                b = bonuses[k, x, a]
                ahead = [sum(counts.p_hat(k, x, a, y) * v[y] for y in counts.next_states(k)) for v in values]
                q[0, j] = min(counts.horizon - k, counts.mean(0, k, x, a) + b + ahead[0])
                for i in range(1, n_payoffs):
                    q[i, j] = max(0.0, counts.mean(i, k, x, a) - b + ahead[i])
            weights = rate * (q[0] - multiplier * q[1:].sum(axis=0))
            weights = np.exp(weights - weights.max())
            policy[k, x, allowed] = weights / weights.sum()
            new[:, x] = q @ policy[k, x, allowed]
        values = new
    return policy, values[:, 0]


def choose(counts: Counts, hyper: Hyper, threshold: Array) -> tuple[Array, float]:
    """pi_t and Y_t: 0 if that is feasible, else the feasible end of a bisection of [0, cap] (cap if none is)."""
    bonuses = np.zeros(counts.mask.shape)
    for k, x, a in np.argwhere(counts.mask).tolist():
        bonuses[k, x, a] = counts.bonus(k, x, a)
    rate = hyper["policy_rate"]

    def feasible(multiplier: float) -> bool:
        return bool((softmax_pass(counts, bonuses, rate, multiplier)[1][1:] <= threshold).all())

    lower, upper = 0.0, hyper["dual_cap"]
    if feasible(0.0):
        upper = 0.0
    else:
        for _ in range(BISECTIONS):
            middle = (lower + upper) / 2
            if feasible(middle):
                upper = middle
            else:
                lower = middle
    return softmax_pass(counts, bonuses, rate, upper)[0], upper


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
) -> dict[str, Array]:
    """len(uniforms) episodes; `episodes` is the T of the constants. Uniforms [n,L,3+M]: action, next state, payoffs.

    Returns, per episode: states, actions, policies (pi_t), multipliers (Y_t, M times).
    """
    mask = np.asarray(action_mask, bool)
    payoffs = np.concatenate([reward[None], cost])
    counts = Counts(mask, len(threshold), hyper, episodes, delta)
    log = []
    for u in uniforms:
        policy, multiplier = choose(counts, hyper, np.asarray(threshold))
        states, actions, x = [], [], 0
        for k in range(counts.horizon):
            states.append(x)
            actions.append(draw(policy[k, x], u[k, 0]))
            if k + 1 < counts.horizon:
                x = draw(transition[k, x, actions[k]], u[k, 1])
        samples = [[float(u[k, 2 + i] < mean[k, states[k], actions[k]]) for k in range(counts.horizon)]
                   for i, mean in enumerate(payoffs)]  # fmt: skip
        counts.add(states, actions, np.array(samples))
        multipliers = np.full(len(threshold), multiplier)
        log.append({"states": states, "actions": actions, "policies": policy, "multipliers": multipliers})
    return {name: np.array([row[name] for row in log]) for name in log[0]}
