"""Plain-loop NumPy (float64) transcription of cpd_oppo (specs/cpd_oppo.md) and of its analysis (THEORY.md).

Layers k = 0..L-1, S padded states, A padded actions, M constraints; state 0 of layer 0 is x_0, x_L is implicit, a state
is real if it has an allowed action. Payoff 0 is the reward, payoff 1 + i the cost i.

Symbols: N = `n`, M(x,a,y) = `next`; r_hat, g_hat = `means`; P_hat = `p_hat`; beta, w the widths; eta_t(x) = `rates`;
W = `weights`; Q^r, Q^g_i = `q_reward`, `q_cost`; V^r, V^g_i = `v_reward`, `v_cost`; lambda_t = `multipliers`;
kappa = `cap`.
"""

import numpy as np

Array = np.ndarray
Hyper = dict[str, float]


def sizes(mask: Array) -> tuple[int, int]:
    """|X| with x_L, and |A|."""
    allowed = [int(mask[k, x].sum()) for k, x in np.ndindex(mask.shape[:2])]
    return 1 + sum(n > 0 for n in allowed), max(allowed)


def theory_constants(mask: Array, m: int, episodes: int, rho: float) -> Hyper:
    """kappa = (L+1)/rho, eta = sqrt(8 ln|A| / T) / (L (1 + kappa m)), widths as proved, every option off."""
    layers = mask.shape[0]
    cap = (layers + 1) / rho
    rate = np.sqrt(8 * np.log(sizes(mask)[1]) / episodes) / (layers * (1 + cap * m))
    options = {"anytime": 0.0, "adaptive_rate": 0.0}
    return {"policy_rate": rate, "dual_cap": cap, "payoff_confidence": 1.0, "transition_confidence": 1.0} | options


class Counts:
    """N, M and the sums of samples; what is estimated of them, and how widely."""

    def __init__(self, mask: Array, m: int, hyper: Hyper, episodes: int, delta: float) -> None:
        self.mask, self.m, self.hyper, self.episodes, self.delta = mask, m, hyper, episodes, delta
        self.layers, self.n_states, self.n_actions = mask.shape
        self.size_x, self.size_a = sizes(mask)
        self.n = np.zeros(mask.shape, int)
        self.next = np.zeros((self.layers - 1, self.n_states, self.n_actions, self.n_states), int)
        self.sums = np.zeros((1 + m, *mask.shape))

    def next_states(self, k: int) -> list[int]:
        """The real states of layer k + 1 (none after the last layer)."""
        return [y for y in range(self.n_states) if self.mask[k + 1, y].any()] if k + 1 < self.layers else []

    def add(self, states: list[int], actions: list[int], samples: Array) -> None:
        """Count an episode; samples [1+M,L]."""
        for k in range(self.layers):
            self.n[k, states[k], actions[k]] += 1
            self.sums[:, k, states[k], actions[k]] += samples[:, k]
            if k + 1 < self.layers:
                self.next[k, states[k], actions[k], states[k + 1]] += 1

    def estimates(self) -> dict[str, Array]:
        """means [1+M,L,S,A], p_hat [L-1,S,A,S] (unseen: 0, uniform), beta and w [L,S,A] (unseen: 1, 2); padding 0."""
        means, p_hat = np.zeros(self.sums.shape), np.zeros(self.next.shape)
        beta, w = np.zeros(self.mask.shape), np.zeros(self.mask.shape)
        for k, x, a in np.argwhere(self.mask):
            n, last, after = int(self.n[k, x, a]), k == self.layers - 1, self.next_states(k)
            if n == 0:
                beta[k, x, a], w[k, x, a] = 1.0, 0.0 if last else 2.0
            else:
                t = int(self.n[0].sum())  # episodes counted: each visits one pair of the first layer
                h = t * (t + 1) if self.hyper["anytime"] > 0 else self.episodes
                common = 8 * h * self.size_x * self.size_a / self.delta
                payoff = self.hyper["payoff_confidence"] * np.log(common * self.m)
                row = self.hyper["transition_confidence"] * (len(after) * np.log(2) + np.log(common))
                means[:, k, x, a] = self.sums[:, k, x, a] / n
                beta[k, x, a] = min(1.0, np.sqrt(payoff / n))
                w[k, x, a] = 0.0 if last else min(2.0, np.sqrt(2 * row / n))
            for y in after:
                p_hat[k, x, a, y] = self.next[k, x, a, y] / n if n else 1 / len(after)
        return {"means": means, "p_hat": p_hat, "beta": beta, "w": w}


def known(kind: str, estimates: dict[str, Array], mask: Array, transition: Array, payoffs: Array) -> dict[str, Array]:
    """No learner, for tests: "truth" has the true model and widths 0; "errors" has as widths the errors themselves."""
    if kind == "truth":
        zero = np.zeros(mask.shape)
        return {"means": payoffs, "p_hat": transition, "beta": zero, "w": zero}
    beta, w = np.zeros(mask.shape), np.zeros(mask.shape)
    for k, x, a in np.argwhere(mask):
        beta[k, x, a] = np.abs(estimates["means"][:, k, x, a] - payoffs[:, k, x, a]).max()
        w[k, x, a] = np.abs(estimates["p_hat"][k, x, a] - transition[k, x, a]).sum() if k + 1 < len(mask) else 0.0
    return estimates | {"beta": beta, "w": w}


def evaluate_widened(est: dict[str, Array], mask: Array, policy: Array, payoff: int) -> tuple[Array, Array]:
    """Q [L,S,A] and V [L,S] of pi_t: optimistic of the reward (payoff 0, cut at L-k), of a cost (cut at 0)."""
    layers = mask.shape[0]
    q, v = np.zeros(mask.shape), np.zeros((layers + 1, mask.shape[1]))
    for k in reversed(range(layers)):
        for x, a in np.argwhere(mask[k]):
            mean, beta = est["means"][payoff, k, x, a], est["beta"][k, x, a]
            bonus = (layers - k - 1) * est["w"][k, x, a] / 2
            ahead = sum(p * v[k + 1, y] for y, p in enumerate(est["p_hat"][k, x, a])) if k + 1 < layers else 0.0
            if payoff == 0:
                q[k, x, a] = min(layers - k, min(1.0, mean + beta) + bonus + ahead)
            else:
                q[k, x, a] = max(0.0, max(0.0, mean - beta) - bonus + ahead)
            v[k, x] += policy[k, x, a] * q[k, x, a]
    return q, v[:layers]


def rates_of(
    hyper: Hyper, mask: Array, m: int, episodes: int, cap: float, range_sum: Array, done: int, clock: str
) -> Array:
    """eta_t(x) [L,S]; `done` = t - 1 episodes are over."""
    base = hyper["policy_rate"]
    rates = np.zeros(mask.shape[:2])
    for k, x in np.ndindex(rates.shape):
        if hyper["adaptive_rate"] > 0:
            full = mask.shape[0] * (1 + cap * m)
            rates[k, x] = base * full * np.sqrt(episodes) / np.sqrt(full**2 + range_sum[k, x])
        elif hyper["anytime"] > 0:
            rates[k, x] = base * np.sqrt(episodes) / np.sqrt(max(1, done if clock == "done" else done + 1))
        else:
            rates[k, x] = base
    return rates


def softmax(scores: Array, mask: Array) -> Array:
    """Over the allowed actions of each real state [L,S,A]; 0 at padding."""
    policy = np.zeros(mask.shape)
    for k, x in np.argwhere(mask.any(axis=-1)):
        row = scores[k, x][mask[k, x]]
        weights = np.exp(row - row.max())
        policy[k, x][mask[k, x]] = weights / weights.sum()
    return policy


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
    knowledge: str = "counts",
    clock: str = "index",
) -> dict[str, Array]:
    """len(uniforms) episodes; `episodes` is the T of the constants. Uniforms [n,L,3+M]: action, next state, payoffs.

    `knowledge`: "counts" (the algorithm), or "truth", "errors" (see `known`). `clock`: under `anytime` episode t has
    eta ~ 1/sqrt(max(1, t - 1)), "done", or 1/sqrt(t), "index".
    Returns, per episode t: states, actions, policies (pi_t), multipliers, cap and rates (of t), means, p_hat, beta, w,
    q_reward, q_cost [M,L,S,A], v_reward, v_cost [M,L,S] (of t, counts include t), and after it weights (W), range_sum.
    """
    mask, m = np.asarray(action_mask, bool), len(threshold)
    layers = mask.shape[0]
    payoffs = np.concatenate([reward[None], cost])
    counts = Counts(mask, m, hyper, episodes, delta)
    weights, range_sum = np.zeros(mask.shape), np.zeros(mask.shape[:2])
    cap = hyper["dual_cap"]
    log = []
    for done, u in enumerate(uniforms):
        rates = rates_of(hyper, mask, m, episodes, cap, range_sum, done, clock)
        policy = softmax(rates[..., None] * weights, mask)
        states, actions, x = [], [], 0
        for k in range(layers):
            states.append(x)
            actions.append(draw(policy[k, x], u[k, 0]))
            if k + 1 < layers:
                x = draw(transition[k, x, actions[k]], u[k, 1])
        samples = [[float(u[k, 2 + i] < mean[k, states[k], actions[k]]) for k in range(layers)]
                   for i, mean in enumerate(payoffs)]  # fmt: skip
        counts.add(states, actions, np.array(samples))
        est = counts.estimates()
        if knowledge != "counts":
            est = known(knowledge, est, mask, transition, payoffs)
        q_reward, v_reward = evaluate_widened(est, mask, policy, 0)
        of_costs = [evaluate_widened(est, mask, policy, 1 + i) for i in range(m)]
        q_cost, v_cost = np.array([q for q, _ in of_costs]), np.array([v for _, v in of_costs])
        multipliers, q = np.zeros(m), q_reward.copy()
        for i in range(m):
            multipliers[i] = cap if v_cost[i, 0, 0] > threshold[i] else 0.0
            q -= multipliers[i] * q_cost[i]
        weights, range_sum = weights.copy(), range_sum.copy()
        for k, x in np.argwhere(mask.any(axis=-1)):
            ok = mask[k, x]
            range_sum[k, x] += (q[k, x][ok].max() - q[k, x][ok].min()) ** 2
            new = (weights[k, x] + q[k, x])[ok]
            weights[k, x][ok] = new - new.max()
        row = {"states": states, "actions": actions, "policies": policy, "multipliers": multipliers, "cap": cap}
        row |= est | {"q_reward": q_reward, "v_reward": v_reward, "q_cost": q_cost, "v_cost": v_cost, "rates": rates}
        log.append(row | {"weights": weights, "range_sum": range_sum})
    return {name: np.array([row[name] for row in log]) for name in log[0]}


def occupancy(policy: Array, transition: Array) -> Array:
    """The probability [L,S] of every state under a policy and the true P."""
    reach = np.zeros(policy.shape[:2])
    reach[0, 0] = 1.0
    for k in range(len(policy) - 1):
        for x, a in np.ndindex(policy.shape[1:]):
            if policy[k, x, a] > 0:
                reach[k + 1] += reach[k, x] * policy[k, x, a] * transition[k, x, a]
    return reach


def true_value(policy: Array, transition: Array, payoff: Array) -> float:
    """V^pi(x_0) of a payoff [L,S,A] under the true P."""
    return float((occupancy(policy, transition)[..., None] * policy * payoff).sum())


def analysis(
    log: dict[str, Array],
    *,
    transition: Array,
    reward: Array,
    cost: Array,
    threshold: Array,
    action_mask: Array,
    optimum: float,
    optimal_costs: Array,
    optimal_policy: Array,
    multiplier_bound: float,
    slack: float = 1e-12,
) -> dict[str, Array]:
    """THEORY (a)-(d) of every episode of a `run`, with kappa = the cap of the episode.

    optimum = OPT, optimal_costs = V^{pi*}(g_i); multiplier_bound: L/rho, or any other bound of ||lambda*||_inf.
    Returns x, e, v, regret (OPT - V^{pi_t}(r), signed) and the sides: a_left <= a_right (per episode), a_sum_left <=
    a_sum_right (exponential weights: holds whatever the widths, for every form of the rate), b_, c_, d_regret_ and
    d_violation_left / right (d asks for cap > multiplier_bound); booleans reward_event, cost_event, transition_event
    (all real pairs; `slack` is for rounding).
    """
    mask, m = np.asarray(action_mask, bool), len(threshold)
    layers = mask.shape[0]
    best_reach = occupancy(optimal_policy, transition)
    log_sizes = np.log(np.maximum(1, mask.sum(axis=-1)))  # ln |A(x)|
    second_order, a_sum, out = np.zeros(mask.shape[:2]), 0.0, []
    for t in range(len(log["cap"])):
        policy, lam, cap = log["policies"][t], log["multipliers"][t], float(log["cap"][t])
        v_r, v_g = log["v_reward"][t, 0, 0], log["v_cost"][t, :, 0, 0]
        true_r = true_value(policy, transition, reward)
        true_g = np.array([true_value(policy, transition, g) for g in cost])
        x_t = (optimum - lam @ (optimal_costs - threshold)) - (v_r - lam @ (v_g - threshold))
        e_t = (v_r - true_r) + cap * (true_g - v_g).sum()
        v_t = np.maximum(0.0, true_g - threshold).sum()
        q = log["q_reward"][t] - np.tensordot(lam, log["q_cost"][t], 1)
        reach, rates = occupancy(policy, transition), log["rates"][t]
        a_right, a_bound, b_right = 0.0, 0.0, 0.0
        for k, x in np.argwhere(mask.any(axis=-1)):
            ok = mask[k, x]
            a_right += best_reach[k, x] * ((optimal_policy[k, x] - policy[k, x]) @ q[k, x])
            second_order[k, x] += rates[k, x] * (q[k, x][ok].max() - q[k, x][ok].min()) ** 2 / 8
            if ok.sum() > 1:
                a_bound += best_reach[k, x] * (log_sizes[k, x] / rates[k, x] + second_order[k, x])
            width = 2 * log["beta"][t, k, x] + (layers - k - 1) * log["w"][t, k, x]
            b_right += (1 + cap * m) * reach[k, x] * (policy[k, x] @ width)
        a_sum += a_right
        errors = np.abs(log["means"][t] - np.concatenate([reward[None], cost]))
        within = (errors <= log["beta"][t] + slack) | ~mask
        l1 = np.abs(log["p_hat"][t] - transition).sum(axis=-1) if layers > 1 else np.zeros((0, *mask.shape[1:]))
        row = {"x": x_t, "e": e_t, "v": v_t, "regret": optimum - true_r, "a_left": x_t, "a_right": a_right}
        row |= {"a_sum_left": a_sum, "a_sum_right": a_bound, "b_left": e_t, "b_right": b_right}
        row |= {"c_left": optimum - true_r + cap * v_t, "c_right": x_t + e_t}
        row |= {"d_regret_left": max(0.0, optimum - true_r), "d_regret_right": x_t + e_t, "d_violation_left": v_t}
        row["d_violation_right"] = (x_t + e_t) / (cap - multiplier_bound) if cap > multiplier_bound else np.inf
        row |= {"reward_event": within[0].all(), "cost_event": within[1:].all()}
        out.append(row | {"transition_event": ((l1 <= log["w"][t, :-1] + slack) | ~mask[:-1]).all()})
    return {name: np.array([row[name] for row in out]) for name in out[0]}


def sum_x_bound(mask: Array, m: int, episodes: int, cap: float) -> float:
    """THEORY (a): sum_t x_t <= L^2 (1 + kappa m) sqrt(T ln|A| / 2), on the event, with the theory's constant rate."""
    return mask.shape[0] ** 2 * (1 + cap * m) * float(np.sqrt(episodes * np.log(sizes(mask)[1]) / 2))
