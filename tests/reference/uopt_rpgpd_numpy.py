"""Plain-loop NumPy (float64) transcription of UOpt-RPGPD (Kitamura et al. 2024).

H = L layers in which actions are taken, S padded states, A padded actions, M constraints; state 0 of layer 0 is x_0,
x_L is implicit, a state is real if it has an allowed action. Every episode: play pi_t, count it, evaluate pi_t with
the counts that INCLUDE it, take the regularised steps of policy and multipliers. No T in any constant.

Symbols: n(x,a), c(x,a,y) counts; e episodes done before this one; eta = `policy_rate` (e+3)^-`rate_exponent`, the
dual's likewise with `dual_rate`; tau = `regularisation` (e+3)^-`regularisation_exponent`; psi(n) = 2 ln ln max(2n, e)
+ 2 ln(48 |X|^2 |A| H / delta), phi^2 = `transition_confidence` psi / n.
"""

import numpy as np

Array = np.ndarray
Hyper = dict[str, float]

THEORY: Hyper = {
    "policy_rate": 1.0,
    "dual_rate": 1.0,
    "rate_exponent": 0.53,
    "regularisation": 1.0,
    "regularisation_exponent": 0.4,
    "transition_confidence": 1.0,
    "payoff_confidence": 1.0,
    "bonus_scale": 1.0,
}


def sizes(mask: Array) -> tuple[int, int]:
    """|X| with x_L, and |A|."""
    n_states = 1
    n_actions = 0
    for k, x in np.ndindex(mask.shape[:2]):
        allowed = int(mask[k, x].sum())
        n_states += allowed > 0
        n_actions = max(n_actions, allowed)
    return n_states, n_actions


class Counts:
    """n, c and the sums of samples; the means and widths made of them."""

    def __init__(self, mask: Array, n_constraints: int, hyper: Hyper, delta: float) -> None:
        self.mask = mask
        self.real: Array = np.asarray(mask.any(axis=-1))
        self.horizon, self.n_states, self.n_actions = mask.shape
        self.n = np.zeros(mask.shape, int)
        self.c = np.zeros((self.horizon - 1, self.n_states, self.n_actions, self.n_states), int)
        self.payoffs = np.zeros((1 + n_constraints, *mask.shape))
        n_real, n_allowed = sizes(mask)
        self.log_actions = np.log(n_allowed)
        self.union = 2 * np.log(48 * n_real**2 * n_allowed * self.horizon / delta)
        self.hyper = hyper

    def next_states(self, k: int) -> list[int]:
        """The real states of layer k + 1 (none after the last layer)."""
        return [y for y in range(self.n_states) if self.real[k + 1, y]] if k + 1 < self.horizon else []

    def p_hat(self, k: int, x: int, a: int, y: int) -> float:
        return self.c[k, x, a, y] / max(1, self.n[k, x, a])

    def mean(self, i: int, k: int, x: int, a: int) -> float:
        return self.payoffs[i, k, x, a] / max(1, self.n[k, x, a])

    def bonus(self, k: int, x: int, a: int) -> float:
        """`bonus_scale` times beta_r + phi sum_y sqrt(p(y)) + 5 phi^2; in the last layer beta_r alone."""
        n = max(1, self.n[k, x, a])
        psi = 2 * np.log(np.log(max(2 * n, np.e))) + self.union
        width = np.sqrt(self.hyper["payoff_confidence"] * psi / n)
        if k + 1 < self.horizon:
            phi = np.sqrt(self.hyper["transition_confidence"] * psi / n)
            width += phi * sum(np.sqrt(self.p_hat(k, x, a, y)) for y in self.next_states(k)) + 5 * phi**2
        return self.hyper["bonus_scale"] * width

    def add(self, states: list[int], actions: list[int], samples: Array) -> None:
        """Count an episode; samples [1+M,L]."""
        for k in range(self.horizon):
            self.n[k, states[k], actions[k]] += 1
            self.payoffs[:, k, states[k], actions[k]] += samples[:, k]
            if k + 1 < self.horizon:
                self.c[k, states[k], actions[k], states[k + 1]] += 1


def evaluate(counts: Counts, policy: Array, tau: float) -> tuple[Array, Array]:
    """Q [1+M,L,S,A] of reward + tau entropy and of the costs, and their values [1+M] at x_0."""
    action_values = np.zeros((len(counts.payoffs), *policy.shape))
    values = np.zeros((len(counts.payoffs), counts.n_states))
    for k in reversed(range(counts.horizon)):
        ceiling = (1 + tau * counts.log_actions) * (counts.horizon - k)
        new = np.zeros(values.shape)
        for x, a in np.argwhere(counts.mask[k]).tolist():
            q = np.zeros(len(values))
            if counts.n[k, x, a] == 0:
                q[0] = ceiling
            else:
                b = counts.bonus(k, x, a)
                ahead = [sum(counts.p_hat(k, x, a, y) * v[y] for y in counts.next_states(k)) for v in values]
                q[0] = min(ceiling, counts.mean(0, k, x, a) + b + ahead[0])
                for i in range(1, len(values)):
                    q[i] = max(0.0, counts.mean(i, k, x, a) - b + ahead[i])
            action_values[:, k, x, a] = q
            pi = policy[k, x, a]
            new[:, x] += pi * q
            if pi > 0:
                new[0, x] -= tau * pi * np.log(pi)
        values = new
    return action_values, values[:, 0]


def softmax(log_weights: Array, mask: Array) -> Array:
    policy = np.zeros(mask.shape)
    for k, x in np.argwhere(mask.any(axis=-1)):
        weights = np.exp(log_weights[k, x][mask[k, x]])
        policy[k, x][mask[k, x]] = weights / weights.sum()
    return policy


def centred(log_weights: Array, mask: Array) -> Array:
    """Shifted so that the largest allowed one of a state is 0; 0 at padding."""
    new = np.zeros(mask.shape)
    for k, x in np.argwhere(mask.any(axis=-1)):
        row = log_weights[k, x][mask[k, x]]
        new[k, x][mask[k, x]] = row - row.max()
    return new


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
    delta: float,
    uniforms: Array,
    episodes: int = 0,
) -> dict[str, Array]:
    """len(uniforms) episodes (`episodes` is not used: no T). Uniforms [n,L,3+M]: action, next state, payoffs.

    Returns, per episode: states, actions, policies (pi_t), multipliers (lambda_t), and after it log_weights and
    next_multipliers (of pi_{t+1}, lambda_{t+1}).
    """
    mask = np.asarray(action_mask, bool)
    payoffs = np.concatenate([reward[None], cost])
    counts = Counts(mask, len(threshold), hyper, delta)
    log_weights, multipliers = np.zeros(mask.shape), np.zeros(len(threshold))
    log = []
    for done, u in enumerate(uniforms):
        policy = softmax(log_weights, mask)
        states, actions, x = [], [], 0
        for k in range(counts.horizon):
            states.append(x)
            actions.append(draw(policy[k, x], u[k, 0]))
            if k + 1 < counts.horizon:
                x = draw(transition[k, x, actions[k]], u[k, 1])
        samples = [[float(u[k, 2 + i] < mean[k, states[k], actions[k]]) for k in range(counts.horizon)]
                   for i, mean in enumerate(payoffs)]  # fmt: skip
        counts.add(states, actions, np.array(samples))
        decay = (done + 3) ** -hyper["rate_exponent"]
        eta, eta_dual = hyper["policy_rate"] * decay, hyper["dual_rate"] * decay
        tau = hyper["regularisation"] * (done + 3) ** -hyper["regularisation_exponent"]
        q, values = evaluate(counts, policy, tau)
        old = multipliers
        gain = q[0] - sum(old[i] * q[1 + i] for i in range(len(old)))
        log_weights = centred((1 - min(1.0, eta * tau)) * log_weights + eta * gain, mask)
        kept = (1 - min(1.0, eta_dual * tau)) * old
        multipliers = np.maximum(0, kept + eta_dual * (values[1:] - threshold))
        row = {"states": states, "actions": actions, "policies": policy, "multipliers": old}
        log.append(row | {"log_weights": log_weights, "next_multipliers": multipliers})
    return {name: np.array([row[name] for row in log]) for name in log[0]}
