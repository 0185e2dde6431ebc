"""Plain-loop NumPy (float64) transcription of UOB-REPS (Jin et al. 2020): docs/rivals.md, section 8.

H = L layers in which actions are taken, S padded states, A padded actions; state 0 of layer 0 is x_0, x_L is implicit, a
state is real if it has an allowed action. Losses in [0,1] that change with the episode, no constraints. Every episode:
play the policy of q_hat, weigh the losses seen by upper occupancy bounds, count, and project in relative entropy onto the
occupancy measures of the confidence set (of a new epoch if some count has doubled).

Symbols: q(k,x,a,y) occupancy of triples, y = 0 alone after the last layer; n(x,a), c(x,a,y) counts; lo, hi the box of the
confidence set; eta = `policy_rate`, gamma = `exploration`; l = `transition_confidence` ln(T |X| |A| / delta).
"""

from collections.abc import Callable

import numpy as np

Array = np.ndarray
Hyper = dict[str, float]


def sizes(mask: Array) -> tuple[int, int]:
    """|X| with x_L, and |A|."""
    return 1 + int(mask.any(axis=-1).sum()), int(mask.sum(axis=-1).max())


def theory_constants(mask: Array, episodes: int, delta: float) -> Hyper:
    """eta = gamma = sqrt(L ln(L |X| |A| / delta) / (T |X| |A|))."""
    n_states, n_actions = sizes(mask)
    horizon, pairs = mask.shape[0], n_states * n_actions
    rate = float(np.sqrt(horizon * np.log(horizon * pairs / delta) / (episodes * pairs)))
    return {"policy_rate": rate, "exploration": rate, "transition_confidence": 1.0}


def newton(dual: Callable[[Array], tuple[float, Array, Array]], rows: Array, layers: Array, n_free: int) -> Array:
    """The minimiser of a dual whose prices from `n_free` on are >= 0, by projected Newton steps (Bertsekas 1982)."""
    prices, signed = np.zeros(len(rows)), np.arange(len(rows)) >= n_free
    value, gradient, q = dual(prices)
    for _ in range(500):
        held = signed & (prices <= 0) & (gradient >= 0)
        if np.abs(np.where(held, 0, np.where(signed, np.minimum(gradient, prices), gradient))).max(initial=0) < 1e-12:
            break
        free = rows[~held]
        hessian = (free * q) @ free.T  # the covariance of the rows, layer by layer
        for k in np.unique(layers):
            mean = free[:, layers == k] @ q[layers == k]
            hessian -= np.outer(mean, mean)
        step = np.zeros(len(rows))
        step[~held] = -np.linalg.solve(hessian + 1e-11 * np.eye(len(free)), gradient[~held])
        for halvings in range(40):
            tried = prices + step / 2**halvings
            tried[signed] = np.maximum(0, tried[signed])
            found = dual(tried)
            if found[0] <= value + 1e-4 * gradient @ (tried - prices):
                break
        else:
            break
        prices, (value, gradient, q) = tried, found
    return prices


class Learner:
    """Counts, epoch, box of the confidence set, and q_hat as a dictionary of triples."""

    def __init__(self, mask: Array, hyper: Hyper, episodes: int, delta: float) -> None:
        self.mask, self.hyper = mask, hyper
        self.horizon, self.n_states, self.n_actions = mask.shape
        self.real: Array = np.asarray(mask.any(axis=-1))
        self.n = np.zeros(mask.shape, int)
        self.n_epoch, self.epoch = self.n.copy(), 1
        self.c = np.zeros((self.horizon - 1, *mask.shape[1:], self.n_states), int)
        self.lo, self.hi = np.zeros(self.c.shape), np.zeros(self.c.shape)
        n_states, n_actions = sizes(mask)
        self.lg = hyper["transition_confidence"] * np.log(episodes * n_states * n_actions / delta)
        self.q: dict[tuple[int, int, int, int], float] = {}
        for k, x, a in np.argwhere(mask).tolist():
            for y in self.next_states(k):
                self.q[k, x, a, y] = 1 / (int(mask[k].sum()) * len(self.next_states(k)))
                if k + 1 < self.horizon:
                    self.hi[k, x, a, y] = 1.0

    def next_states(self, k: int) -> list[int]:
        """The real states of layer k + 1; x_L, as 0, after the last layer."""
        return [y for y in range(self.n_states) if self.real[k + 1, y]] if k + 1 < self.horizon else [0]

    def policy(self) -> Array:
        mass = np.zeros(self.mask.shape)
        for (k, x, a, _), value in self.q.items():
            mass[k, x, a] += value
        for k, x in np.argwhere(self.real):
            if mass[k, x].sum() == 0:
                mass[k, x] = self.mask[k, x]
        return mass / np.where(self.real, mass.sum(axis=2), 1)[..., None]

    def upper_occupancy(self, policy: Array, layer: int, target: int) -> float:
        """max over the confidence set of the probability to be in state `target` of `layer`."""
        value = np.zeros(self.n_states)
        value[target] = 1.0
        for k in reversed(range(layer)):
            new = np.zeros(self.n_states)
            for x, a in np.argwhere(self.mask[k]).tolist():
                p = self.lo[k, x, a].copy()
                left = 1 - p.sum()
                for y in sorted(self.next_states(k), key=lambda y: -value[y]):
                    extra = min(left, self.hi[k, x, a, y] - self.lo[k, x, a, y])
                    p[y] += extra
                    left -= extra
                new[x] += policy[k, x, a] * float(p @ value)
            value = new
        return float(value[0])

    def count(self, states: list[int], actions: list[int]) -> None:
        """Counts; if one of a visited pair has doubled, an epoch and a confidence set."""
        for k in range(self.horizon):
            self.n[k, states[k], actions[k]] += 1
            if k + 1 < self.horizon:
                self.c[k, states[k], actions[k], states[k + 1]] += 1
        visited = list(zip(range(self.horizon), states, actions, strict=True))
        if not any(self.n[pair] >= max(1, 2 * self.n_epoch[pair]) for pair in visited):
            return
        self.n_epoch, self.epoch = self.n.copy(), self.epoch + 1
        for k, x, a in np.argwhere(self.mask[:-1] & (self.n[:-1] > 0)).tolist():
            less = max(1, self.n[k, x, a] - 1)
            for y in self.next_states(k):
                p = self.c[k, x, a, y] / self.n[k, x, a]
                width = 2 * np.sqrt(p * self.lg / less) + 14 * self.lg / (3 * less)
                self.lo[k, x, a, y], self.hi[k, x, a, y] = max(0.0, p - width), min(1.0, p + width)

    def rows(self, names: list[tuple[int, int, int, int]]) -> tuple[Array, Array]:
        """The flow (outflow - inflow = 0) and the box (<= 0) as rows over the triples."""
        at = {name: j for j, name in enumerate(names)}
        flow, box = [], []
        for k, x in np.argwhere(self.real).tolist()[1:]:  # not x_0
            flow.append([float(j[:2] == (k, x)) - float((j[0], j[3]) == (k - 1, x)) for j in names])
        for k, x, a, y in (name for name in names if name[0] + 1 < self.horizon):
            every = np.array([float(j[:3] == (k, x, a)) for j in names])
            this = np.zeros(len(names))
            this[at[k, x, a, y]] = 1
            if self.hi[k, x, a, y] < 1:
                box.append(this - self.hi[k, x, a, y] * every)
            if self.lo[k, x, a, y] > 0:
                box.append(self.lo[k, x, a, y] * every - this)
        return np.array(flow).reshape(-1, len(names)), np.array(box).reshape(-1, len(names))

    def project(self, estimate: Array) -> float:
        """q_hat <- the minimiser, by its dual; the largest violation of a constraint that is left."""
        names = list(self.q)
        flow, box = self.rows(names)
        layers = np.array([name[0] for name in names])
        losses = np.array([estimate[name[:3]] for name in names])
        start = np.log(np.maximum(list(self.q.values()), 1e-300)) - self.hyper["policy_rate"] * losses
        both = np.vstack([flow, box])

        def dual(prices: Array) -> tuple[float, Array, Array]:
            exponent, value, q = start - both.T @ prices, 0.0, np.zeros(len(names))
            for k in range(self.horizon):
                most = exponent[layers == k].max()
                weights = np.exp(exponent[layers == k] - most)
                value += most + np.log(weights.sum())
                q[layers == k] = weights / weights.sum()
            return value, -both @ q, q

        q = dual(newton(dual, both, layers, len(flow)))[2]
        self.q = dict(zip(names, q.tolist(), strict=True))
        return float(max(np.abs(flow @ q).max(initial=0), (box @ q).max(initial=0)))


def draw(probabilities: Array, u: float) -> int:
    """The first index whose cumulative probability exceeds u; the last possible one if rounding hides it."""
    total = 0.0
    for j, p in enumerate(probabilities):
        total += p
        if total > u:
            return j
    return int(np.flatnonzero(probabilities)[-1])


def run(
    *, transition: Array, action_mask: Array, hyper: Hyper, episodes: int, delta: float, losses: Array, uniforms: Array
) -> dict[str, Array]:
    """On given losses [n,L,S,A], of which only those of visited pairs are used; uniforms [n,L,2+]: action, next state.

    Returns, per episode: states, actions, policies (pi_t), epochs (after it), upper (u of the visited pairs), residual.
    """
    learner = Learner(np.asarray(action_mask, bool), hyper, episodes, delta)
    log = []
    for loss, u in zip(losses, uniforms, strict=True):
        policy = learner.policy()
        states, actions, x = [], [], 0
        for k in range(learner.horizon):
            states.append(x)
            actions.append(draw(policy[k, x], u[k, 0]))
            if k + 1 < learner.horizon:
                x = draw(transition[k, x, actions[k]], u[k, 1])
        upper, estimate = np.zeros(learner.horizon), np.zeros(learner.mask.shape)
        for k, (x, a) in enumerate(zip(states, actions, strict=True)):
            upper[k] = policy[k, x, a] * learner.upper_occupancy(policy, k, x)
            estimate[k, x, a] = loss[k, x, a] / (upper[k] + hyper["exploration"])
        learner.count(states, actions)
        row = {"states": states, "actions": actions, "policies": policy, "upper": upper}
        log.append(row | {"residual": learner.project(estimate), "epochs": learner.epoch})
    return {name: np.array([row[name] for row in log]) for name in log[0]}
