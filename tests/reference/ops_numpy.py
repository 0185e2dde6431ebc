"""Plain-loop NumPy (float64) transcription of BV-OPS and S-OPS (Stradi et al. 2025): docs/rivals.md, section 9.

Both are UOB-REPS with a confidence set that is renewed in every episode and a projection that also has one row per
constraint; S-OPS, which is given a safe policy, plays a mixture. Shapes and symbols are those of `uob_reps_numpy`, whose
sets, occupancy bounds and Newton steps are used; g = mean costs [m,L,S,A], xi = their widths.
"""

import numpy as np
from scipy.optimize import linprog

from tests.reference import uob_reps_numpy
from tests.reference.uob_reps_numpy import Array, Hyper, draw, newton, sizes


def log_term(mask: Array, n_constraints: int, episodes: int, delta: float) -> float:
    """u = ln(8 m |X|^2 |A| T / delta)."""
    n_states, n_actions = sizes(mask)
    return float(np.log(8 * n_constraints * n_states**2 * n_actions * episodes / delta))


def theory_constants(mask: Array, n_constraints: int, episodes: int, delta: float) -> Hyper:
    """eta = gamma = sqrt(L u / (T |X| |A|))."""
    n_states, n_actions = sizes(mask)
    u = log_term(mask, n_constraints, episodes, delta)
    rate = float(np.sqrt(mask.shape[0] * u / (episodes * n_states * n_actions)))
    return {"policy_rate": rate, "exploration": rate, "transition_confidence": 1.0, "payoff_confidence": 1.0}


class Learner(uob_reps_numpy.Learner):
    """Counts, sums of costs, box of the confidence set, and q_hat."""

    def __init__(self, mask: Array, hyper: Hyper, episodes: int, delta: float, threshold: Array) -> None:
        super().__init__(mask, hyper, episodes, delta)
        self.threshold, self.cost_sum = threshold, np.zeros((len(threshold), *mask.shape))
        self.u = log_term(mask, len(threshold), episodes, delta)
        self.solvable, self.unsolvable = True, 0

    def observe(self, states: list[int], actions: list[int], costs: Array) -> None:
        """Count the episode, costs [m,L]; then the confidence set of all data."""
        for k in range(self.horizon):
            self.n[k, states[k], actions[k]] += 1
            self.cost_sum[:, k, states[k], actions[k]] += costs[:, k]
            if k + 1 < self.horizon:
                self.c[k, states[k], actions[k], states[k + 1]] += 1
        u = self.hyper["transition_confidence"] * self.u
        for k, x, a in np.argwhere(self.mask[:-1] & (self.n[:-1] > 1)).tolist():
            less = self.n[k, x, a] - 1
            for y in self.next_states(k):
                p = self.c[k, x, a, y] / self.n[k, x, a]
                eps = min(1.0, 2 * np.sqrt(p * u / less) + 14 * u / (3 * less))
                self.lo[k, x, a, y], self.hi[k, x, a, y] = max(0.0, p - eps), min(1.0, p + eps)

    def costs(self) -> tuple[Array, Array]:
        """g [m,L,S,A] and xi [L,S,A]."""
        xi = np.ones(self.mask.shape)
        for pair in zip(*np.nonzero(self.n), strict=True):
            xi[pair] = min(1.0, np.sqrt(4 * self.hyper["payoff_confidence"] * self.u / self.n[pair]))
        return self.cost_sum / np.maximum(1, self.n), xi

    def project_within_costs(self, estimate: Array) -> float:
        """q_hat <- the projection, without the cost rows if they have no solution; what is left of a violation."""
        names = list(self.q)
        flow, box = self.rows(names)
        g, xi = self.costs()
        cost = np.array([[g_i[name[:3]] - xi[name[:3]] for name in names] for g_i in g])
        layers = np.array([name[0] for name in names])
        ones = np.array([(layers == k).astype(float) for k in range(self.horizon)])
        rows, ends = np.vstack([box, cost]), np.append(np.zeros(len(box)), self.threshold)
        equal, values = np.vstack([ones, flow]), np.append(np.ones(self.horizon), np.zeros(len(flow)))
        self.solvable = linprog(np.zeros(len(names)), rows, ends, equal, values, bounds=(0, None)).status == 0
        if not self.solvable:
            rows, ends, self.unsolvable = box, np.zeros(len(box)), self.unsolvable + 1
        losses = np.array([estimate[name[:3]] for name in names])
        start = np.log(np.maximum(list(self.q.values()), 1e-300)) - self.hyper["policy_rate"] * losses
        both, right = np.vstack([flow, rows]), np.append(np.zeros(len(flow)), ends)

        def dual(prices: Array) -> tuple[float, Array, Array]:
            exponent, value, q = start - both.T @ prices, float(prices @ right), np.zeros(len(names))
            for k in range(self.horizon):
                most = exponent[layers == k].max()
                weights = np.exp(exponent[layers == k] - most)
                value += most + np.log(weights.sum())
                q[layers == k] = weights / weights.sum()
            return value, right - both @ q, q

        q = dual(newton(dual, both, layers, len(flow)))[2]
        self.q = dict(zip(names, q.tolist(), strict=True))
        return float(max(np.abs(flow @ q).max(initial=0), (rows @ q - ends).max(initial=0)))

    def reach(self, policy: Array) -> Array:
        """The largest occupancy of every pair over the set, [L,S,A]."""
        upper = np.zeros(policy.shape)
        for k, x in np.argwhere(self.real).tolist():
            upper[k, x] = policy[k, x] * self.upper_occupancy(policy, k, x)
        return upper

    def safe_weight(self, policy: Array, safe_cost: Array) -> float:
        """lambda: how often the safe policy must be played, so that no cost can exceed its threshold."""
        if not self.solvable:
            return 1.0
        g, xi = self.costs()
        upper, weight = self.reach(policy), 0.0
        for g_i, alpha, beta in zip(g, self.threshold, safe_cost, strict=True):
            w = min(float(self.horizon), float(((g_i + xi) * upper).sum())) if self.n.any() else float(self.horizon)
            if w > alpha:
                weight = max(weight, (w - alpha) / (w - beta))
        return weight


def run(
    *,
    transition: Array,
    action_mask: Array,
    threshold: Array,
    hyper: Hyper,
    episodes: int,
    delta: float,
    losses: Array,
    costs: Array,
    uniforms: Array,
    safe: tuple[Array, Array] | None = None,
    coins: Array | None = None,
) -> dict[str, Array]:
    """On given losses [n,L,S,A] and costs [n,m,L,S,A], of which only those of visited pairs are used.

    uniforms [n,L,2+]: action, next state. S-OPS is given safe = (pi_b [L,S,A], its costs [m]) and coins [n]: pi_b is
    played if the coin is below lambda. Returns, per episode: states, actions, policies (played), weight (lambda, 0 for
    BV-OPS), upper (of the visited pairs), unsolvable (projections so far), residual.
    """
    learner = Learner(np.asarray(action_mask, bool), hyper, episodes, delta, np.asarray(threshold))
    log = []
    for t, (loss, cost, u) in enumerate(zip(losses, costs, uniforms, strict=True)):
        policy = own = learner.policy()
        weight = 0.0
        if safe is not None and coins is not None:
            weight = learner.safe_weight(own, safe[1])
            policy = safe[0] if coins[t] < weight else own
        states, actions, x = [], [], 0
        for k in range(learner.horizon):
            states.append(x)
            actions.append(draw(policy[k, x], u[k, 0]))
            if k + 1 < learner.horizon:
                x = draw(transition[k, x, actions[k]], u[k, 1])
        upper, estimate = np.zeros(learner.horizon), np.zeros(learner.mask.shape)
        bounds = (1 - weight) * learner.reach(own)
        if safe is not None and weight > 0:
            bounds = bounds + weight * learner.reach(safe[0])
        for k, (x, a) in enumerate(zip(states, actions, strict=True)):
            upper[k] = bounds[k, x, a]
            estimate[k, x, a] = loss[k, x, a] / (upper[k] + hyper["exploration"])
        pairs = tuple(zip(range(learner.horizon), states, actions, strict=True))
        learner.observe(states, actions, np.array([[c[pair] for pair in pairs] for c in cost]))
        row = {"states": states, "actions": actions, "policies": policy, "weight": weight, "upper": upper}
        residual = learner.project_within_costs(estimate)
        log.append(row | {"residual": residual, "unsolvable": learner.unsolvable})
    return {name: np.array([row[name] for row in log]) for name in log[0]}
