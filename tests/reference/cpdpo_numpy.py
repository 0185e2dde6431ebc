"""Plain-loop NumPy (float64) transcription of CPD-PO and PO-DB, used as a test oracle: clarity, never speed.

"Algorithm 2, line n" is `cpd-po.tex` (line 1 sets pi_1, line 3 is the loop); PO-DB (Luo, Wei and Lee 2021, Algorithm 1)
and COMP-UOB (Jin et al. 2020) follow SPEC sections 3 and 4. Shapes: L layers in which actions are taken, S padded
states, A padded actions, M constraints. State 0 of layer 0 is x_0; x_L is implicit, so `transition` is [L-1,S,A,S].
A state is real if it has an allowed action. `exploration` (gamma) must be positive.
"""

import numpy as np

Array = np.ndarray
Hyper = dict[str, float]


def sizes(action_mask: Array) -> tuple[int, int]:
    """Return (|X|, |A|): real states plus x_L, and the largest number of allowed actions (SPEC 0)."""
    return int(action_mask.any(axis=-1).sum()) + 1, int(action_mask.sum(axis=-1).max())


def theory_constants(action_mask: Array, n_constraints: int, episodes: int, rho: float) -> Hyper:
    """Constants as stated: eta and gamma of PO-DB (SPEC 3), the dual cap of line 7, the range of the loss of line 8."""
    action_mask = np.asarray(action_mask, dtype=bool)
    horizon = action_mask.shape[0]
    n_states, n_actions = sizes(action_mask)
    eta = min(1.0 / (24.0 * horizon**3), 1.0 / np.sqrt(float(n_states * n_actions * horizon * episodes)))
    return {
        "learning_rate": float(eta),
        "exploration": float(2.0 * eta * horizon),
        "bonus_scale": 1.0,
        "dilation": 1.0 + 1.0 / horizon,
        "reward_confidence": 1.0,
        "cost_confidence": 1.0,
        "transition_confidence": 1.0,
        "dual_cap": (horizon + 1) / rho,
        "loss_scale": 2.0 * (horizon + 1) * n_constraints / rho,
        "clip": 0.0,
    }


def extreme_expectation(lo: Array, hi: Array, f: Array, maximise: bool) -> float:
    """Max (or min) of p.f over lo <= p <= hi, sum p = 1: start from lo, hand out the rest in the order of f."""
    order = sorted(range(len(f)), key=lambda j: f[j], reverse=maximise)
    left = 1.0 - sum(lo)
    value = 0.0
    for j in order:
        extra = min(max(left, 0.0), hi[j] - lo[j])
        value += (lo[j] + extra) * f[j]
        left -= extra
    return float(value)


def draw(probabilities: Array, u: float, allowed: Array) -> int:
    """First index whose cumulative probability (left to right) exceeds u; the last allowed one if rounding hides it."""
    total = 0.0
    last = 0
    for j in range(len(probabilities)):
        total += probabilities[j]
        if total > u:
            return j
        if allowed[j]:
            last = j
    return last


def play(policy: Array, transition: Array, action_mask: Array, uniforms: Array) -> tuple[list[int], list[int]]:
    """Algorithm 1 (interaction): the trajectory of one episode, from columns 0 and 1 of the episode's uniforms."""
    horizon = policy.shape[0]
    states: list[int] = []
    actions: list[int] = []
    x = 0
    for k in range(horizon):
        a = draw(policy[k, x], uniforms[k, 0], action_mask[k, x])
        states.append(x)
        actions.append(a)
        if k < horizon - 1:
            x = draw(transition[k, x, a], uniforms[k, 1], transition[k, x, a] > 0)
    return states, actions


def policy_value(policy: Array, transition: Array, payoff: Array) -> float:
    """V^{pi,P}(payoff) at x_0 by the backward recursion of Section 3 (rows of P may sum to less than one)."""
    horizon, n_states, n_actions = policy.shape
    value = np.zeros(n_states)
    for k in reversed(range(horizon)):
        new = np.zeros(n_states)
        for x, a in np.ndindex(n_states, n_actions):
            q = payoff[k, x, a]
            if k < horizon - 1:
                for y in range(n_states):
                    q += transition[k, x, a, y] * value[y]
            new[x] += policy[k, x, a] * q
        value = new
    return float(value[0])


class PODB:
    """PO-DB: `observe` counts a trajectory, then `update` changes the policy and, when due, starts a new epoch."""

    def __init__(self, action_mask: Array, hyper: Hyper, episodes: int, delta: float) -> None:
        """Start with zero counts, epoch 1, the set of all transition functions and the uniform policy."""
        self.mask = np.asarray(action_mask, dtype=bool)
        self.real = self.mask.any(axis=-1)
        self.hyper = hyper
        self.shape = horizon, n_states, n_actions = self.mask.shape
        x_size, a_size = sizes(self.mask)
        self.log_term = hyper["transition_confidence"] * np.log(episodes * x_size * a_size / delta)
        self.visits = np.zeros(self.shape, dtype=int)
        self.moves = np.zeros((horizon - 1, n_states, n_actions, n_states), dtype=int)
        self.log_weights = np.zeros(self.shape)
        self.epoch = 0
        self.start_epoch()

    def start_epoch(self) -> None:
        """SPEC 3: freeze the counts and build the boxes lo <= P <= hi of the confidence set P_k."""
        self.epoch += 1
        self.visits_at_start = self.visits.copy()
        self.lo = np.zeros(self.moves.shape)
        self.hi = np.zeros(self.moves.shape)
        for k, x, a, y in np.ndindex(self.moves.shape):
            n = self.visits[k, x, a]
            if self.real[k + 1, y] and n == 0:  # pyright: ignore[reportIndexIssue]
                self.hi[k, x, a, y] = 1.0
            elif self.real[k + 1, y]:  # pyright: ignore[reportIndexIssue]
                mean = self.moves[k, x, a, y] / n
                conf = 4.0 * np.sqrt(mean * self.log_term / n) + 28.0 * self.log_term / (3.0 * n)
                self.lo[k, x, a, y] = max(0.0, mean - conf)
                self.hi[k, x, a, y] = min(1.0, mean + conf)

    def policy(self) -> Array:
        """pi_t(a|x) proportional to exp(-eta sum (Q_hat - B)) on the allowed actions; 0 elsewhere."""
        policy = np.zeros(self.shape)
        for k, x in np.argwhere(self.real):
            weights = np.where(self.mask[k, x], np.exp(self.log_weights[k, x]), 0.0)
            policy[k, x] = weights / weights.sum()
        return policy

    def occupancy_bound(self, policy: Array, layer: int, target: int, maximise: bool) -> float:
        """COMP-UOB (SPEC 4): the extreme of q^{P,pi}(target) over the confidence set, by one backward recursion."""
        _, n_states, n_actions = self.shape
        f = np.zeros(n_states)
        f[target] = 1.0
        for k in reversed(range(layer)):
            new = np.zeros(n_states)
            for y, a in np.ndindex(n_states, n_actions):
                if self.mask[k, y, a]:
                    new[y] += policy[k, y, a] * extreme_expectation(self.lo[k, y, a], self.hi[k, y, a], f, maximise)
            f = new
        return float(f[0])

    def dilated_bonus(self, policy: Array, up: Array, low: Array) -> Array:
        """b_t and B_t of SPEC 3: B = b + dilation * max_P E[B of the next layer under pi_t], B = 0 at layer L."""
        horizon, n_states, n_actions = self.shape
        gamma = self.hyper["exploration"]
        bonus = np.zeros(self.shape)
        next_bonus = np.zeros(n_states)
        for k in reversed(range(horizon)):
            b = np.zeros(n_states)
            for x, a in np.ndindex(n_states, n_actions):
                q_up, q_low = policy[k, x, a] * up[k, x], policy[k, x, a] * low[k, x]
                b[x] += policy[k, x, a] * (3.0 * gamma * horizon + horizon * (q_up - q_low)) / (q_up + gamma)
            averaged = np.zeros(n_states)
            for x, a in np.ndindex(n_states, n_actions):
                if self.mask[k, x, a]:
                    bonus[k, x, a] = self.hyper["bonus_scale"] * b[x]
                    if k < horizon - 1:
                        worst = extreme_expectation(self.lo[k, x, a], self.hi[k, x, a], next_bonus, True)
                        bonus[k, x, a] += self.hyper["dilation"] * worst
                    averaged[x] += policy[k, x, a] * bonus[k, x, a]
            next_bonus = averaged
        return bonus

    def observe(self, states: list[int], actions: list[int]) -> None:
        """Add the trajectory to N and M (Section 4); the confidence set stays that of the epoch."""
        for k in range(self.shape[0]):
            self.visits[k, states[k], actions[k]] += 1
            if k < self.shape[0] - 1:
                self.moves[k, states[k], actions[k], states[k + 1]] += 1

    def update(self, policy: Array, states: list[int], actions: list[int], losses: Array) -> tuple[Array, Array, Array]:
        """Algorithm 2, line 9: the step of PO-DB, after `observe`. Returns (up, low, bonus) of the episode."""
        horizon, n_states, _ = self.shape
        up, low = np.zeros((horizon, n_states)), np.zeros((horizon, n_states))
        for k, x in np.argwhere(self.real):
            up[k, x] = self.occupancy_bound(policy, k, x, True)
            low[k, x] = self.occupancy_bound(policy, k, x, False)
        bonus = self.dilated_bonus(policy, up, low)
        q_hat = np.zeros(self.shape)
        for k in range(horizon):
            x, a = states[k], actions[k]
            q_hat[k, x, a] = sum(losses[k:]) / (policy[k, x, a] * up[k, x] + self.hyper["exploration"])
        self.log_weights = self.log_weights - self.hyper["learning_rate"] * (q_hat - bonus)
        for k, x in np.argwhere(self.real):
            shifted = self.log_weights[k, x] - self.log_weights[k, x][self.mask[k, x]].max()
            self.log_weights[k, x] = np.where(self.mask[k, x], shifted, 0.0)
        for k in range(horizon):
            pair = k, states[k], actions[k]
            if self.visits[pair] >= max(1, 2 * self.visits_at_start[pair]):
                self.start_epoch()
                break
        return up, low, bonus


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
    past_counts: bool = False,
) -> dict[str, Array]:
    """Algorithm 2 (CPD-PO) for len(uniforms) episodes; reward [L,S,A], cost [M,L,S,A] or [L,S,A,M], threshold [M]."""
    m = len(threshold)
    if cost.shape != (m, *reward.shape):
        assert cost.shape == (*reward.shape, m), "cost must be [M,L,S,A] or [L,S,A,M]"
        cost = np.moveaxis(cost, -1, 0)
    podb = PODB(action_mask, hyper, episodes, delta)
    x_size, a_size = sizes(podb.mask)
    horizon = podb.shape[0]
    reward_log = hyper["reward_confidence"] * np.log(episodes * x_size * a_size / delta)
    cost_log = hyper["cost_confidence"] * np.log(episodes * x_size * a_size * m / delta)
    reward_sum, cost_sum = np.zeros(podb.shape), np.zeros((m, *podb.shape))
    log = []
    for u in uniforms:
        policy = podb.policy()
        states, actions = play(policy, transition, podb.mask, u)  # lines 4-5: interact and observe
        past = podb.visits.copy(), podb.moves.copy(), reward_sum.copy(), cost_sum.copy()
        podb.observe(states, actions)
        for k in range(horizon):
            pair = k, states[k], actions[k]
            reward_sum[pair] += float(u[k, 2] < reward[pair])
            for i in range(m):
                cost_sum[(i, *pair)] += float(u[k, 3 + i] < cost[(i, *pair)])
        # line 6: the estimators of Section 4, episode t included; or, so that the loss is fixed given the past, without it
        seen = past if past_counts else (podb.visits, podb.moves, reward_sum, cost_sum)
        count = np.maximum(1, seen[0])
        reward_bar = seen[2] / count + np.minimum(1.0, np.sqrt(4.0 * reward_log / count))
        cost_low = seen[3] / count - np.minimum(1.0, np.sqrt(4.0 * cost_log / count))
        model = seen[1] / count[:-1, :, :, None]
        if hyper["clip"]:
            reward_bar, cost_low = np.clip(reward_bar, 0.0, 1.0), np.clip(cost_low, 0.0, 1.0)
        values, multipliers = np.zeros(m), np.zeros(m)
        for i in range(m):  # line 7: the dual maximum
            values[i] = policy_value(policy, model, cost_low[i])
            multipliers[i] = hyper["dual_cap"] if values[i] > threshold[i] else 0.0
        losses = np.zeros(horizon)
        for k in range(horizon):  # line 8: the Lagrangian loss on the visited pairs, scaled
            pair = k, states[k], actions[k]
            lagrangian = reward_bar[pair]
            for i in range(m):
                lagrangian -= multipliers[i] * (cost_low[(i, *pair)] - threshold[i] / horizon)
            losses[k] = (hyper["dual_cap"] * m - lagrangian) / hyper["loss_scale"]
        up, low, bonus = podb.update(policy, states, actions, losses)  # line 9: PO-DB
        row = {"states": states, "actions": actions, "multipliers": multipliers, "epochs": podb.epoch, "losses": losses}
        row |= {"policies": policy, "log_weights": podb.log_weights.copy(), "bonus": bonus, "values": values}
        log.append(row | {"up": up, "low": low})
    return {name: np.array([row[name] for row in log]) for name in log[0]}


def run_podb(
    *, transition: Array, action_mask: Array, hyper: Hyper, episodes: int, delta: float, losses: Array, uniforms: Array
) -> dict[str, Array]:
    """PO-DB alone on given losses [n,L,S,A]; only those at the visited pairs are used."""
    podb = PODB(action_mask, hyper, episodes, delta)
    log = []
    for loss, u in zip(losses, uniforms, strict=True):
        policy = podb.policy()
        states, actions = play(policy, transition, podb.mask, u)
        podb.observe(states, actions)
        visited = np.array([loss[k, states[k], actions[k]] for k in range(podb.shape[0])])
        podb.update(policy, states, actions, visited)
        row = {"states": states, "actions": actions, "epochs": podb.epoch, "policies": policy}
        log.append(row | {"log_weights": podb.log_weights.copy()})
    return {name: np.array([row[name] for row in log]) for name in log[0]}
