"""Plain-loop NumPy (float64) transcription of the learner with a learnt cap, from its theorem and proof (THEORY.md).

Layers k = 0..L-1, S padded states, A padded actions, M constraints; state 0 of layer 0 is x_0, x_L is implicit, a state
is real if it has an allowed action. Payoff 0 is the reward, payoff 1 + i the cost i.

Symbols: N = `n`, M(x,a,y) = `next`; beta, w, P_hat as named; Q^r, Q^{g_i} = `q[0]`, `q[1 + i]`; B_t = `width`;
kappa_j = `cap`; vtilde(n) = `violation`; S(n) + the primal part = `allowed` = Z(n).
"""

import numpy as np

Array = np.ndarray
Hyper = dict[str, float]
THEORY: Hyper = {
    "first_cap": 1.0,
    "largest_cap": 1e30,
    "rate_scale": 1.0,
    "rate_delay": 0.0,
    "bound_scale": 1.0,
    "realised": 0.0,
    "guarded": 0.0,
    "transition_confidence": 1.0,
    "payoff_confidence": 1.0,
    "rare_width": 0.0,
}


def sizes(mask: Array) -> tuple[int, int]:
    """|X| with x_L, and |A|."""
    allowed = [int(mask[k, x].sum()) for k, x in np.ndindex(mask.shape[:2])]
    return 1 + sum(n > 0 for n in allowed), max(allowed)


class Model:
    """Counts and sums of samples of all episodes, and the estimates with their widths."""

    def __init__(self, mask: Array, m: int, hyper: Hyper, delta: float) -> None:
        self.mask, self.m, self.hyper, self.delta, self.t = mask, m, hyper, delta, 0
        layers, states, actions = mask.shape
        self.n = np.zeros(mask.shape, int)
        self.next = np.zeros((layers - 1, states, actions, states), int)
        self.sums = np.zeros((1 + m, *mask.shape))
        self.means, self.p_hat = np.zeros(self.sums.shape), np.zeros(self.next.shape)
        self.beta, self.w = np.zeros(mask.shape), np.zeros(mask.shape)

    def add(self, states: list[int], actions: list[int], samples: Array) -> None:
        """Count an episode; samples [1+M,L]."""
        self.t += 1
        for k, (x, a) in enumerate(zip(states, actions, strict=True)):
            self.n[k, x, a] += 1
            self.sums[:, k, x, a] += samples[:, k]
            if k + 1 < len(states):
                self.next[k, x, a, states[k + 1]] += 1

    def estimate(self) -> None:
        """means, p_hat (0 where unseen), beta and w (1 and 2 where unseen; w = 0 in the last layer)."""
        layers = len(self.mask)
        size_x, size_a = sizes(self.mask)
        inside = 8 * self.t * (self.t + 1) * size_x * size_a / self.delta
        for k, x, a in np.argwhere(self.mask):
            n, last = int(self.n[k, x, a]), k == layers - 1
            arrivals = 0 if last else int(self.mask[k + 1].any(axis=-1).sum())
            if n == 0:
                self.beta[k, x, a], self.w[k, x, a] = 1.0, 0.0 if last else 2.0
                continue
            payoff = self.hyper["payoff_confidence"] * np.log(inside * self.m)
            row = self.hyper["transition_confidence"] * (arrivals * np.log(2) + np.log(inside))
            self.means[:, k, x, a] = self.sums[:, k, x, a] / n
            self.beta[k, x, a] = min(1.0, np.sqrt(payoff / n) + self.hyper["rare_width"] * np.log(self.t / n) / n)
            self.w[k, x, a] = 0.0 if last else min(2.0, np.sqrt(2 * row / n))
            if not last:
                self.p_hat[k, x, a] = self.next[k, x, a] / n

    def known(self, transition: Array, payoffs: Array) -> None:
        """The true model without widths, for tests: then e_t = 0 and B_t = 0."""
        self.means, self.p_hat = payoffs, transition
        self.beta, self.w = np.zeros(self.mask.shape), np.zeros(self.mask.shape)

    def backwards(self, policy: Array, what: int) -> tuple[Array, float]:
        """(action values [L,S,A], value at x_0): the reward (0), a cost (1..M), or the widths (-1)."""
        layers = len(self.mask)
        q, v = np.zeros(self.mask.shape), np.zeros((layers + 1, self.mask.shape[1]))
        for k in reversed(range(layers)):
            for x, a in np.argwhere(self.mask[k]):
                to_go, beta, w = layers - k, self.beta[k, x, a], self.w[k, x, a]
                ahead = 0.0
                if k + 1 < layers:
                    ahead = sum(p * v[k + 1, y] for y, p in enumerate(self.p_hat[k, x, a]))
                if what == 0:
                    value = min(to_go, min(1.0, self.means[0, k, x, a] + beta) + (to_go - 1) * w / 2 + ahead)
                elif what > 0:
                    value = max(0.0, max(0.0, self.means[what, k, x, a] - beta) - (to_go - 1) * w / 2 + ahead)
                else:
                    value = min(to_go, 2 * beta + (to_go - 1) * w + ahead)
                q[k, x, a] = value
                v[k, x] += policy[k, x, a] * value
        return q, v[0, 0]


class Phase:
    """Everything that starts afresh when the cap is doubled."""

    def __init__(self, mask: Array, cap: float, before: int) -> None:
        self.mask, self.cap, self.before, self.n = mask, cap, before, 0
        self.q_sum, self.gained = np.zeros(mask.shape), np.zeros(mask.shape[:2])  # sum of Q, of <pi, Q>
        self.violation, self.width = 0.0, 0.0

    def policy(self, m: int, hyper: Hyper) -> Array:
        """pi prop. to exp(eta_n sum of the phase's earlier Q) in the next episode, the n-th."""
        layers, log_actions = len(self.mask), np.log(sizes(self.mask)[1])
        n = self.n + 1 + hyper["rate_delay"]
        eta = hyper["rate_scale"] * np.sqrt(8 * log_actions / n) / (layers * (1 + self.cap * m))
        policy = np.zeros(self.mask.shape)
        for k, x in np.argwhere(self.mask.any(axis=-1)):
            ok = self.mask[k, x]
            row = eta * self.q_sum[k, x][ok]
            weights = np.exp(row - row.max())
            policy[k, x][ok] = weights / weights.sum()
        return policy

    def allowed(self, m: int, hyper: Hyper) -> float:
        """Z(n): form B, or form R with what the exponential weights really lost."""
        layers, span = len(self.mask), 1 + self.cap * m
        if hyper["realised"] > 0:
            primal = 0.0
            for k in range(layers):
                real = [x for x in range(self.mask.shape[1]) if self.mask[k, x].any()]
                primal += max(self.q_sum[k, x][self.mask[k, x]].max() - self.gained[k, x] for x in real)
        else:
            primal = span * 1.5 * layers**2 * np.sqrt(self.n * np.log(sizes(self.mask)[1]) / 2)
        return hyper["bound_scale"] * (primal + span * self.width)


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
    true_model: bool = False,
) -> dict[str, Array]:
    """len(uniforms) episodes. Uniforms [n,L,3+M]: action, next state, payoffs.

    Returns, per episode: states, actions, policies, multipliers, cap (of the episode), values [1+M], width (B_t),
    q_values [1+M,L,S,A], violation, allowed and length (vtilde(n), Z(n), n, with this episode), next_cap.
    """
    mask, m = np.asarray(action_mask, bool), len(threshold)
    layers = len(mask)
    payoffs = np.concatenate([reward[None], cost])
    model, phase, log = Model(mask, m, hyper, delta), Phase(mask, hyper["first_cap"], 0), []
    for u in uniforms:
        policy = phase.policy(m, hyper)
        states, actions, x = [], [], 0
        for k in range(layers):
            states.append(x)
            actions.append(draw(policy[k, x], u[k, 0]))
            if k + 1 < layers:
                x = draw(transition[k, x, actions[k]], u[k, 1])
        samples = [[float(u[k, 2 + i] < mean[k, states[k], actions[k]]) for k in range(layers)]
                   for i, mean in enumerate(payoffs)]  # fmt: skip
        model.add(states, actions, np.array(samples))
        if true_model:
            model.known(transition, payoffs)
        else:
            model.estimate()
        each = [model.backwards(policy, what) for what in range(1 + m)]
        q_values, values = np.array([q for q, _ in each]), np.array([v for _, v in each])
        _, width = model.backwards(policy, -1)
        multipliers = np.where(values[1:] > threshold, phase.cap, 0.0)
        q = q_values[0] - np.tensordot(multipliers, q_values[1:], 1)
        phase.n += 1
        phase.q_sum = phase.q_sum + q
        phase.gained = phase.gained + (policy * q).sum(axis=-1)
        phase.width += width
        phase.violation += np.maximum(values[1:] - threshold, 0.0).sum()
        row = {"states": states, "actions": actions, "policies": policy, "multipliers": multipliers, "cap": phase.cap}
        row |= {"q_values": q_values, "values": values, "width": width, "length": phase.n}
        row |= {"violation": phase.violation, "allowed": phase.allowed(m, hyper)}
        if _doubles(phase, row["allowed"], hyper):
            phase = Phase(mask, min(2 * phase.cap, hyper["largest_cap"]), phase.before + phase.n)
        log.append(row | {"next_cap": phase.cap})
    return {name: np.array([row[name] for row in log]) for name in log[0]}


def _doubles(phase: Phase, allowed: float, hyper: Hyper) -> bool:
    """vtilde(n) > 2 Z(n) / kappa_j; guarded: and the phase is at least as long as all before it; never at the ceiling."""
    exceeds = phase.violation > 2 * allowed / phase.cap
    long_enough = hyper["guarded"] == 0 or phase.n >= phase.before
    return bool(exceeds and long_enough and phase.cap < hyper["largest_cap"])


def theorem(mask: Array, m: int, *, norm: float, first_cap: float, phases: int, episodes: int, delta: float) -> Hyper:
    """The theorem's right-hand sides: the largest cap, the most phases, V_T and R_T; norm = Lambda, phases = J."""
    layers, (size_x, size_a) = len(mask), sizes(mask)
    log = np.log(8 * episodes * (episodes + 1) * size_x * size_a * m / delta)
    pairs, steps = size_x * size_a, layers * episodes
    widths = 2 * (layers + 1) * pairs + 4 * np.sqrt(log * pairs * steps)
    widths += 2 * layers * size_x * np.sqrt(2 * np.log(2) * size_a * episodes)
    widths += 2 * layers * np.sqrt(2 * log * pairs * steps)
    total = 1.5 * layers**2 * np.sqrt(np.log(size_a) / 2) * np.sqrt(phases * episodes)
    total += 2.4 * (widths + layers * (layers + 1) * np.log(4 / delta))
    largest = max(first_cap, 4 * norm)
    violation = (2 / first_cap + 3 * m) * total + (phases - 1) * m * layers
    regret = (1 + largest * m) * total + (0.0 if first_cap >= norm else norm * violation)
    most = 1 + max(0, int(np.ceil(np.log2(2 * norm / first_cap)))) if norm > 0 else 1
    return {"cap": largest, "phases": most, "violation": violation, "regret": regret}
