"""Plain-loop NumPy (float64) transcription of the optimistic baselines (SPEC section 5): clarity, never speed.

OptPrimalDual-CMDP and OptDual-CMDP are Efroni, Mannor and Pirotta (2020); the regularised primal-dual method is Mueller
et al. (2024). H = L layers in which actions are taken, S padded states, A padded actions, M constraints; state 0 of
layer 0 is x_0, x_L is implicit, a state is real if it has an allowed action. Every episode is written in the papers'
order: evaluate (or plan) with the counts from before it, take the steps, play, count.

Symbols: n(x,a), m(x,a,y) counts; lg = ln(6 |X| |A| H T / delta); tau = `regularisation`, eta or t_K = `policy_rate`,
1/t_lambda = `dual_rate`, cap = `dual_cap`.
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


def theory_constants(learner: str, mask: Array, m: int, episodes: int, rho: float) -> Hyper:
    """The constants of SPEC 5; cap = 2H/rho."""
    horizon = mask.shape[0]
    cap = 2 * horizon / rho
    hyper = {"transition_confidence": 1.0, "payoff_confidence": 1.0}
    t_lambda = np.sqrt(horizon**2 * m * episodes / cap**2)
    if learner == "optdual":
        return hyper | {"dual_rate": 1 / t_lambda}
    if learner == "optprimaldual":
        t_k = np.sqrt(2 * np.log(sizes(mask)[1]) / (horizon**2 * (1 + m * cap) ** 2 * episodes))
        return hyper | {"dual_rate": 1 / t_lambda, "policy_rate": t_k, "dual_cap": cap, "bonus_scale": 1.0}
    eta, tau = episodes ** (-5 / 7), episodes ** (-1 / 7)
    regularised = {"policy_rate": eta, "dual_rate": eta, "regularisation": tau, "entropy_ceiling": 1.0}
    return hyper | regularised | {"dual_cap": cap}


class Counts:
    """n, m and the sums of samples; the widths made of them."""

    def __init__(self, mask: Array, n_constraints: int, hyper: Hyper, episodes: int, delta: float) -> None:
        self.mask = mask
        self.real: Array = np.asarray(mask.any(axis=-1))
        self.horizon, self.n_states, self.n_actions = mask.shape
        self.n = np.zeros(mask.shape, int)
        self.m = np.zeros((self.horizon - 1, self.n_states, self.n_actions, self.n_states), int)
        self.payoffs = np.zeros((1 + n_constraints, *mask.shape))
        n_real, n_allowed = sizes(mask)
        lg = np.log(6 * n_real * n_allowed * self.horizon * episodes / delta)
        self.transition_lg = hyper["transition_confidence"] * lg
        self.payoff_lg = hyper["payoff_confidence"] * lg
        self.scale = hyper.get("bonus_scale", 1.0)  # of beta_r + H sum_y beta_p
        self.entropy_ceiling = hyper.get("entropy_ceiling", 1.0)

    def next_states(self, k: int) -> list[int]:
        """The real states of layer k + 1 (none after the last layer)."""
        return [y for y in range(self.n_states) if self.real[k + 1, y]] if k + 1 < self.horizon else []

    def p_hat(self, k: int, x: int, a: int, y: int) -> float:
        return self.m[k, x, a, y] / max(1, self.n[k, x, a])

    def mean(self, i: int, k: int, x: int, a: int) -> float:
        return self.payoffs[i, k, x, a] / max(1, self.n[k, x, a])

    def beta_p(self, k: int, x: int, a: int, y: int) -> float:
        p, n = self.p_hat(k, x, a, y), max(1, self.n[k, x, a])
        return 2 * np.sqrt(p * (1 - p) * self.transition_lg / n) + 14 / 3 * self.transition_lg / n

    def beta_r(self, k: int, x: int, a: int) -> float:
        return np.sqrt(self.payoff_lg / max(1, self.n[k, x, a]))

    def transition_bonus(self, k: int, x: int, a: int) -> float:
        return self.horizon * sum(self.beta_p(k, x, a, y) for y in self.next_states(k))

    def add(self, states: list[int], actions: list[int], samples: Array) -> None:
        """Count an episode; samples [1+M,L]."""
        for k in range(self.horizon):
            self.n[k, states[k], actions[k]] += 1
            self.payoffs[:, k, states[k], actions[k]] += samples[:, k]
            if k + 1 < self.horizon:
                self.m[k, states[k], actions[k], states[k + 1]] += 1


def truncated_evaluation(counts: Counts, policy: Array, kind: str, i: int = 0) -> tuple[Array, float]:
    """Q [L,S,A] and V(x_0) of the "reward", of "cost" i, or of the "entropy" -ln pi, each with its bonus and cut."""
    log_actions = np.log(sizes(counts.mask)[1])
    action_values = np.zeros(policy.shape)
    value = np.zeros(counts.n_states)
    for k in reversed(range(counts.horizon)):
        new = np.zeros(counts.n_states)
        for x, a in np.argwhere(counts.mask[k]):
            ahead = sum(counts.p_hat(k, x, a, y) * value[y] for y in counts.next_states(k))
            bonus = counts.transition_bonus(k, x, a)
            ceiling = counts.horizon - k
            if kind == "reward":
                q = min(ceiling, counts.mean(0, k, x, a) + counts.scale * (counts.beta_r(k, x, a) + bonus) + ahead)
            elif kind == "cost":
                q = max(0, counts.mean(1 + i, k, x, a) - counts.scale * (counts.beta_r(k, x, a) + bonus) + ahead)
            else:
                ceiling *= counts.entropy_ceiling * log_actions
                q = min(ceiling, -np.log(policy[k, x, a]) + log_actions * bonus + ahead)
            if counts.n[k, x, a] == 0:  # never seen: nothing is known of it but the bounds
                q = 0 if kind == "cost" else ceiling
            action_values[k, x, a] = q
            new[x] += policy[k, x, a] * q
        value = new
    return action_values, value[0]


def softmax(log_weights: Array, mask: Array) -> Array:
    policy = np.zeros(mask.shape)
    for k, x in np.argwhere(mask.any(axis=-1)):
        weights = np.exp(log_weights[k, x][mask[k, x]])
        policy[k, x][mask[k, x]] = weights / weights.sum()
    return policy


def exponentiated_step(log_weights: Array, mask: Array, step: Array) -> Array:
    """ln pi + step, shifted so that the largest allowed one of a state is 0; 0 at padding."""
    new = np.zeros(mask.shape)
    for k, x in np.argwhere(mask.any(axis=-1)):
        row = (log_weights[k, x] + step[k, x])[mask[k, x]]
        new[k, x][mask[k, x]] = row - row.max()
    return new


def best_transition(counts: Counts, k: int, x: int, a: int, value: Array) -> Array:
    """The distribution of the confidence set with the largest expectation of `value`: fill up in its order."""
    lower, upper = np.zeros(counts.n_states), np.zeros(counts.n_states)
    for y in counts.next_states(k):
        p, beta = counts.p_hat(k, x, a, y), counts.beta_p(k, x, a, y)
        unseen = counts.n[k, x, a] == 0
        lower[y], upper[y] = (0.0, 1.0) if unseen else (max(0.0, p - beta), min(1.0, p + beta))
    p, left = lower.copy(), 1 - lower.sum()
    for y in sorted(counts.next_states(k), key=lambda y: (-value[y], y)):
        extra = min(max(left, 0.0), upper[y] - lower[y])
        p[y] += extra
        left -= extra
    return p


def plan(counts: Counts, multipliers: Array) -> tuple[Array, Array]:
    """Extended value iteration: a deterministic policy [L,S,A] and the values [M] of the optimistic costs."""
    n_constraints = len(multipliers)
    policy = np.zeros(counts.mask.shape)
    value, costs = np.zeros(counts.n_states), np.zeros((n_constraints, counts.n_states))
    for k in reversed(range(counts.horizon)):
        new_value, new_costs = np.zeros(counts.n_states), np.zeros((n_constraints, counts.n_states))
        for x in np.flatnonzero(counts.real[k]).tolist():
            best = -np.inf
            for a in np.flatnonzero(counts.mask[k, x]).tolist():
                width = counts.beta_r(k, x, a)
                q = min(1.0, counts.mean(0, k, x, a) + width)
                cost = np.array([max(0.0, counts.mean(1 + i, k, x, a) - width) for i in range(n_constraints)])
                q -= float(multipliers @ cost)
                if k + 1 < counts.horizon:
                    p = best_transition(counts, k, x, a, value)
                    q += float(p @ value)
                    cost = cost + costs @ p
                if q > best:
                    best = q
                    new_value[x], new_costs[:, x] = q, cost
                    policy[k, x] = np.arange(counts.n_actions) == a
        value, costs = new_value, new_costs
    return policy, costs[:, 0]


def draw(probabilities: Array, u: float) -> int:
    """The first index whose cumulative probability exceeds u; the last possible one if rounding hides it."""
    total = 0.0
    for j, p in enumerate(probabilities):
        total += p
        if total > u:
            return j
    return int(np.flatnonzero(probabilities)[-1])


def run(
    learner: str,
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

    Returns, per episode: states, actions, policies (pi_t), multipliers (lambda_t), and after it log_weights and
    next_multipliers (of pi_{t+1}, lambda_{t+1}).
    """
    mask = np.asarray(action_mask, bool)
    payoffs = np.concatenate([reward[None], cost])
    counts = Counts(mask, len(threshold), hyper, episodes, delta)
    log_weights, multipliers = np.zeros(mask.shape), np.zeros(len(threshold))
    log = []
    for t, u in enumerate(uniforms):
        old = multipliers
        if learner == "optdual":
            policy, values = plan(counts, old)
            if t == 0:  # nothing seen: every policy is optimal, the uniform one is played
                policy = softmax(log_weights, mask)
            multipliers = np.maximum(0, old + hyper["dual_rate"] * (values - threshold))
        else:
            policy = softmax(log_weights, mask)
            q, _ = truncated_evaluation(counts, policy, "reward")
            values = np.zeros(len(threshold))
            for i in range(len(threshold)):
                q_cost, values[i] = truncated_evaluation(counts, policy, "cost", i)
                q = q - old[i] * q_cost
            kept = old
            if learner == "regularized_primal_dual":
                q = q + hyper["regularisation"] * truncated_evaluation(counts, policy, "entropy")[0]
                kept = (1 - hyper["dual_rate"] * hyper["regularisation"]) * old
            log_weights = exponentiated_step(log_weights, mask, hyper["policy_rate"] * q)
            multipliers = np.clip(kept + hyper["dual_rate"] * (values - threshold), 0, hyper["dual_cap"])
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
        log.append(row | {"log_weights": log_weights, "next_multipliers": multipliers})
    return {name: np.array([row[name] for row in log]) for name in log[0]}
