"""Plain-loop NumPy (float64) transcription of OPSE-LCMDP (Kitamura et al. 2025) for tables: docs/rivals.md, 7.

H = L layers in which actions are taken, S padded states, A padded actions, M constraints; state 0 of layer 0 is x_0, x_L
is implicit, a state is real if it has an allowed action. Given: a safe policy pi_b. Every episode, with the counts from
before it: the softmax policy of the smallest multiplier (by bisection) whose PESSIMISTIC cost is feasible, else pi_b.

Symbols: n(x,a), c(x,a,y) counts; lg = ln(6 |X| |A| H T / delta); b = beta_r + H sum_y beta_p(y); w = min(L - k, b), L - k if
never seen; s = w / (L - k); 1/kappa = `policy_rate`, B = `compensation`, C_lambda = `dual_cap`, E = 1 + kappa ln|A|.
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


def theory_constants(mask: Array, episodes: int, threshold: Array, safe_cost: Array) -> Hyper:
    """B = 4 H^2 / gap, kappa = gap^2 / (32 H^2 (B + 1) sqrt(T)), C_lambda = 8 (H E)^2 (B + 1) / gap."""
    gap, horizon = float(np.min(np.asarray(threshold) - safe_cost)), mask.shape[0]
    b = 4 * horizon**2 / gap
    kappa = gap**2 / (32 * horizon**2 * (b + 1) * float(np.sqrt(episodes)))
    reach = horizon * (1 + kappa * float(np.log(sizes(mask)[1])))
    return {
        "compensation": b,
        "policy_rate": 1 / kappa,
        "dual_cap": 8 * reach**2 * (b + 1) / gap,
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
        n_real, self.n_allowed = sizes(mask)
        lg = np.log(6 * n_real * self.n_allowed * self.horizon * episodes / delta)
        self.transition_lg = hyper["transition_confidence"] * lg
        self.payoff_lg = hyper["payoff_confidence"] * lg

    def next_states(self, k: int) -> list[int]:
        """The real states of layer k + 1 (none after the last layer)."""
        return [y for y in range(self.n_states) if self.real[k + 1, y]] if k + 1 < self.horizon else []

    def p_hat(self, k: int, x: int, a: int, y: int) -> float:
        return self.c[k, x, a, y] / max(1, self.n[k, x, a])

    def mean(self, i: int, k: int, x: int, a: int) -> float:
        return self.payoffs[i, k, x, a] / max(1, self.n[k, x, a])

    def width(self, k: int, x: int, a: int) -> float:
        """w."""
        n = self.n[k, x, a]
        if n == 0:
            return self.horizon - k
        total = 0.0
        for y in self.next_states(k):
            p = self.p_hat(k, x, a, y)
            total += 2 * np.sqrt(p * (1 - p) * self.transition_lg / n) + 14 / 3 * self.transition_lg / n
        return min(self.horizon - k, np.sqrt(self.payoff_lg / n) + self.horizon * total)

    def add(self, states: list[int], actions: list[int], samples: Array) -> None:
        """Count an episode; samples [1+M,L]."""
        for k in range(self.horizon):
            self.n[k, states[k], actions[k]] += 1
            self.payoffs[:, k, states[k], actions[k]] += samples[:, k]
            if k + 1 < self.horizon:
                self.c[k, states[k], actions[k], states[k + 1]] += 1


def softmax_pass(counts: Counts, widths: Array, hyper: Hyper, multiplier: float) -> tuple[Array, Array]:
    """The composite softmax policy [L,S,A] of a multiplier, and the pessimistic values [M] of its costs at x_0."""
    policy, m = np.zeros(counts.mask.shape), len(counts.payoffs) - 1
    rate, b = hyper["policy_rate"], hyper["compensation"]
    e = 1 + np.log(counts.n_allowed) / rate
    reward, extra, costs = np.zeros(counts.n_states), np.zeros(counts.n_states), np.zeros((m, counts.n_states))
    for k in reversed(range(counts.horizon)):
        left = counts.horizon - k
        new_reward, new_extra, new_costs = np.zeros_like(reward), np.zeros_like(extra), np.zeros_like(costs)
        for x in np.flatnonzero(counts.real[k]).tolist():
            allowed = np.flatnonzero(counts.mask[k, x]).tolist()
            q_reward, q_extra, q_costs = np.zeros(len(allowed)), np.zeros(len(allowed)), np.zeros((m, len(allowed)))
            for j, a in enumerate(allowed):
                w, s = widths[k, x, a], widths[k, x, a] / left
                p = np.array(
                    [counts.p_hat(k, x, a, y) if k + 1 < counts.horizon else 0 for y in range(counts.n_states)]
                )
                q_reward[j] = min(1 + (left - 1) * e, counts.mean(0, k, x, a) + e * w + p @ reward)
                q_extra[j] = b * s + min(b * (left - 1), b * (left - 1) * s + p @ extra)
                for i in range(m):
                    q_costs[i, j] = min(left, counts.mean(1 + i, k, x, a) + w + p @ costs[i])
            weights = rate * (q_extra + q_reward - multiplier * q_costs.sum(axis=0))
            weights = np.exp(weights - weights.max())
            pi = weights / weights.sum()
            entropy = -sum(value * np.log(value) for value in pi if value > 0)
            policy[k, x, allowed] = pi
            new_reward[x], new_extra[x], new_costs[:, x] = pi @ q_reward + entropy / rate, pi @ q_extra, q_costs @ pi
        reward, extra, costs = new_reward, new_extra, new_costs
    return policy, costs[:, 0]


def choose(counts: Counts, hyper: Hyper, threshold: Array) -> tuple[Array | None, float]:
    """The policy of the multiplier found, and the multiplier; no policy if even the largest is not feasible."""
    widths = np.zeros(counts.mask.shape)
    for k, x, a in np.argwhere(counts.mask).tolist():
        widths[k, x, a] = counts.width(k, x, a)

    def feasible(multiplier: float) -> bool:
        return bool((softmax_pass(counts, widths, hyper, multiplier)[1] <= threshold).all())

    lower, upper = 0.0, hyper["dual_cap"]
    if feasible(0.0):
        upper = 0.0
    elif not feasible(upper):
        return None, upper
    else:
        for _ in range(BISECTIONS):
            middle = (lower + upper) / 2
            if feasible(middle):
                upper = middle
            else:
                lower = middle
    return softmax_pass(counts, widths, hyper, upper)[0], upper


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
) -> dict[str, Array]:
    """len(uniforms) episodes; `episodes` is the T of the constants. Uniforms [n,L,3+M]: action, next state, payoffs.

    Returns, per episode: states, actions, policies (pi_t), multipliers (M times the one found), fallback (pi_b played).
    """
    mask = np.asarray(action_mask, bool)
    payoffs = np.concatenate([reward[None], cost])
    counts = Counts(mask, len(threshold), hyper, episodes, delta)
    log = []
    for u in uniforms:
        chosen, multiplier = choose(counts, hyper, np.asarray(threshold))
        policy = safe_policy if chosen is None else chosen
        states, actions, x = [], [], 0
        for k in range(counts.horizon):
            states.append(x)
            actions.append(draw(policy[k, x], u[k, 0]))
            if k + 1 < counts.horizon:
                x = draw(transition[k, x, actions[k]], u[k, 1])
        samples = [[float(u[k, 2 + i] < mean[k, states[k], actions[k]]) for k in range(counts.horizon)]
                   for i, mean in enumerate(payoffs)]  # fmt: skip
        counts.add(states, actions, np.array(samples))
        row = {"states": states, "actions": actions, "policies": policy, "fallback": chosen is None}
        log.append(row | {"multipliers": np.full(len(threshold), multiplier)})
    return {name: np.array([row[name] for row in log]) for name in log[0]}
