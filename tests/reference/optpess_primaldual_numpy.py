"""Plain-loop NumPy (float64) transcription of OptPess-PrimalDual (Liu et al. 2021).

H = L layers in which actions are taken, S padded states, A padded actions, M constraints; state 0 of layer 0 is x_0,
x_L is implicit, a state is real if it has an allowed action. Every episode: with the counts from before it, a greedy
backward pass on optimistic reward minus weighted optimistic costs, the step of the multipliers, play, count.

Symbols: n(x,a), c(x,a,y) counts; lg = ln(6 |X| |A| H T / delta); weight = `dual_rate` lambda / sqrt(t) (their lambda
/ eta_t); eps_t = `tightening` (l + 1) / sqrt(t l), l = ln(16 |X|^2 |A| H t / delta); b = beta_r + H sum_y beta_p(y).
A pair never seen has Q^r = L - k, Q^g = 0.
"""

import numpy as np

Array = np.ndarray
Hyper = dict[str, float]


def sizes(mask: Array) -> tuple[int, int]:
    """|X| with x_L, and |A|."""
    n_states = 1
    n_actions = 0
    for k, x in np.ndindex(mask.shape[:2]):
        allowed = int(mask[k, x].sum())
        n_states += allowed > 0
        n_actions = max(n_actions, allowed)
    return n_states, n_actions


def theory_constants(mask: Array, rho: float) -> Hyper:
    """eta_t = rho H sqrt(t); eps_t's factor 5 H^2 sqrt(S^3 A)."""
    n_real, n_allowed = sizes(mask)
    horizon = mask.shape[0]
    return {
        "dual_rate": 1 / (rho * horizon),
        "tightening": 5 * horizon**2 * float(np.sqrt(n_real**3 * n_allowed)),
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


def first_maximum(values: list[float]) -> int:
    """The lowest index within 1e-9 (relative, if larger than 1) of the maximum."""
    best = max(values)
    return next(j for j, value in enumerate(values) if value >= best - 1e-9 * max(1.0, abs(best)))


def plan(counts: Counts, weights: Array) -> tuple[Array, Array]:
    """The greedy policy [L,S,A], and the optimistic values [1+M] of reward and costs at x_0."""
    policy = np.zeros(counts.mask.shape)
    values = np.zeros((len(counts.payoffs), counts.n_states))
    for k in reversed(range(counts.horizon)):
        new = np.zeros(values.shape)
        for x in np.flatnonzero(counts.real[k]).tolist():
            allowed = np.flatnonzero(counts.mask[k, x]).tolist()
            candidates = []
            for a in allowed:
                q = np.zeros(len(values))
                if counts.n[k, x, a] == 0:
                    q[0] = counts.horizon - k
                else:
                    b = counts.bonus(k, x, a)
                    ahead = [sum(counts.p_hat(k, x, a, y) * v[y] for y in counts.next_states(k)) for v in values]
                    q[0] = min(counts.horizon - k, counts.mean(0, k, x, a) + b + ahead[0])
                    for i in range(1, len(values)):
                        q[i] = max(0.0, counts.mean(i, k, x, a) - b + ahead[i])
                candidates.append(q)
            chosen = first_maximum([float(q[0] - weights @ q[1:]) for q in candidates])
            policy[k, x, allowed[chosen]] = 1.0
            new[:, x] = candidates[chosen]
        values = new
    return policy, values[:, 0]


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

    Returns, per episode: states, actions, policies (pi_t), multipliers (lambda_t), and next_multipliers after it.
    """
    mask = np.asarray(action_mask, bool)
    payoffs = np.concatenate([reward[None], cost])
    counts = Counts(mask, len(threshold), hyper, episodes, delta)
    n_real, n_allowed = sizes(mask)
    multipliers = np.zeros(len(threshold))
    log = []
    for t, u in enumerate(uniforms, start=1):
        old = multipliers
        policy, values = plan(counts, hyper["dual_rate"] * old / np.sqrt(t))
        lt = np.log(16 * n_real**2 * n_allowed * counts.horizon * t / delta)
        epsilon = hyper["tightening"] * (lt + 1) / np.sqrt(t * lt)
        multipliers = np.maximum(0, old + values[1:] + epsilon - threshold)
        states, actions, x = [], [], 0
        for k in range(counts.horizon):
            states.append(x)
            actions.append(draw(policy[k, x], u[k, 0]))
            if k + 1 < counts.horizon:
                x = draw(transition[k, x, actions[k]], u[k, 1])
        samples = [[float(u[k, 2 + i] < mean[k, states[k], actions[k]]) for k in range(counts.horizon)]
                   for i, mean in enumerate(payoffs)]  # fmt: skip
        counts.add(states, actions, np.array(samples))
        row = {"states": states, "actions": actions, "policies": policy, "multipliers": old}
        log.append(row | {"next_multipliers": multipliers})
    return {name: np.array([row[name] for row in log]) for name in log[0]}
