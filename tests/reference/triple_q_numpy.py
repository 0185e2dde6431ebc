"""Plain-loop NumPy (float64) transcription of Triple-Q (Wei, Liu and Ying 2022), model-free.

H = L layers in which actions are taken, S padded states, A padded actions, M constraints; state 0 of layer 0 is x_0,
x_L is implicit, a state is real if it has an allowed action. Utilities u_i = 1 - g_i are wanted above L - alpha_i.

Symbols: Q, C_i the tables of reward and utilities, Z_i the virtual queues (`queue`); chi = `learning_offset`, 1/eta =
`dual_rate`, eps = `tightening`, iota = 128 ln(sqrt(2 |X| |A| H) T); a frame has `frame_length` episodes, at its end Q
is raised by `frame_bonus` and cut at L - k. `transition_confidence` multiplies iota in the bonus of an update.
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


def iota(mask: Array, episodes: int) -> float:
    """128 ln(sqrt(2 S A H) T)."""
    n_real, n_allowed = sizes(mask)
    return 128 * float(np.log(np.sqrt(2 * n_real * n_allowed * mask.shape[0]) * episodes))


def theory_constants(mask: Array, episodes: int) -> Hyper:
    n_real, n_allowed = sizes(mask)
    horizon, scale = mask.shape[0], episodes**0.2
    log = iota(mask, episodes)
    return {
        "learning_offset": scale,
        "dual_rate": 1 / scale,
        "frame_length": float(max(1, round(episodes**0.6))),
        "tightening": 8 * float(np.sqrt(n_real * n_allowed * horizon**6 * log**3)) / scale,
        "frame_bonus": 2 * horizon**3 * float(np.sqrt(log)) / scale,
        "transition_confidence": 1.0,
    }


def first_maximum(values: list[float]) -> int:
    """The lowest index within 1e-9 (relative, if larger than 1) of the maximum."""
    best = max(values)
    return next(j for j, value in enumerate(values) if value >= best - 1e-9 * max(1.0, abs(best)))


class Tables:
    """Q, C, visits of the frame, queues Z, the sum of C at the start of the episodes of the frame."""

    def __init__(self, mask: Array, threshold: Array, hyper: Hyper, episodes: int) -> None:
        self.mask, self.hyper = mask, hyper
        self.horizon = mask.shape[0]
        self.wanted = self.horizon - np.asarray(threshold, float)
        self.iota = iota(mask, episodes)
        self.tables = np.zeros((1 + len(threshold), *mask.shape))  # Q, then C_i
        for k, x, a in np.argwhere(mask):
            self.tables[:, k, x, a] = self.horizon - k
        self.visits = np.zeros(mask.shape, int)
        self.queue, self.start_sum = np.zeros(len(threshold)), np.zeros(len(threshold))
        self.frame_step = 0

    def policy(self) -> Array:
        """Greedy on Q + sum_i (Z_i / eta) C_i."""
        policy = np.zeros(self.mask.shape)
        for k, x in np.argwhere(self.mask.any(axis=-1)):
            allowed = np.flatnonzero(self.mask[k, x])
            weights = self.hyper["dual_rate"] * self.queue
            scores = [float(self.tables[0, k, x, a] + weights @ self.tables[1:, k, x, a]) for a in allowed]
            policy[k, x, allowed[first_maximum(scores)]] = 1.0
        return policy

    def update(self, states: list[int], actions: list[int], samples: Array) -> None:
        """An episode; samples [1+M,L] of reward and utilities."""
        chi, old = self.hyper["learning_offset"], self.tables.copy()
        self.start_sum = self.start_sum + old[1:, 0, states[0], actions[0]]
        for k in range(self.horizon):
            pair = (k, states[k], actions[k])
            self.visits[pair] += 1
            rate = (chi + 1) / (chi + self.visits[pair])
            bonus = np.sqrt(self.hyper["transition_confidence"] * self.iota * self.horizon**2 * rate) / 4
            for i in range(len(self.tables)):
                ahead = old[i, k + 1, states[k + 1], actions[k + 1]] if k + 1 < self.horizon else 0.0
                self.tables[i][pair] = (1 - rate) * old[i][pair] + rate * (samples[i, k] + ahead + bonus)
        self.frame_step += 1
        if self.frame_step >= self.hyper["frame_length"]:
            self.end_frame()

    def end_frame(self) -> None:
        mean = self.start_sum / self.frame_step
        self.queue = np.maximum(0, self.queue + self.wanted + self.hyper["tightening"] - mean)
        for k, x, a in np.argwhere(self.mask):
            self.tables[0, k, x, a] += self.hyper["frame_bonus"]
            if (self.tables[:, k, x, a] >= self.horizon - k).any():
                self.tables[:, k, x, a] = self.horizon - k
        self.visits[:], self.start_sum, self.frame_step = 0, np.zeros(len(self.queue)), 0


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
    uniforms: Array,
    delta: float = 0.0,
) -> dict[str, Array]:
    """len(uniforms) episodes; `episodes` is the T of iota (delta is not used).

    Uniforms [n,L,3+M]: action, state, payoffs.

    Returns, per episode: states, actions, policies (pi_t), multipliers (Z_t / eta), and after it next_multipliers,
    queue [M], tables [1+M,L,S,A].
    """
    mask = np.asarray(action_mask, bool)
    horizon = mask.shape[0]
    payoffs = np.concatenate([reward[None], cost])
    learner = Tables(mask, threshold, hyper, episodes)
    log = []
    for u in uniforms:
        policy, old = learner.policy(), hyper["dual_rate"] * learner.queue
        states, actions, x = [], [], 0
        for k in range(horizon):
            states.append(x)
            actions.append(draw(policy[k, x], u[k, 0]))
            if k + 1 < horizon:
                x = draw(transition[k, x, actions[k]], u[k, 1])
        samples = np.array([[float(u[k, 2 + i] < mean[k, states[k], actions[k]]) for k in range(horizon)]
                            for i, mean in enumerate(payoffs)])  # fmt: skip
        samples[1:] = 1 - samples[1:]
        learner.update(states, actions, samples)
        row = {"states": states, "actions": actions, "policies": policy, "multipliers": old}
        after = {"next_multipliers": hyper["dual_rate"] * learner.queue, "queue": learner.queue}
        log.append(row | after | {"tables": learner.tables.copy()})
    return {name: np.array([row[name] for row in log]) for name in log[0]}
