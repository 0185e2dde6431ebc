"""CPD-PO as plain NumPy loops, one seed: a direct transcription of Algorithm 2 without optimisation.

Only timed, not a learner of the package. Every state has all actions; state 0 of layer 0 is x_0; the paper's constants.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np


class Model(NamedTuple):
    """The true CMDP, of NumPy or JAX arrays."""

    transition: Any  # [L-1,S,A,S]
    payoff: Any  # [1+M,L,S,A] mean reward, then mean costs
    threshold: Any  # [M]
    optimum: float


class Constants(NamedTuple):
    """The paper's and PO-DB's constants for a known T."""

    learning_rate: float  # eta
    exploration: float  # gamma
    log_transition: float
    log_reward: float
    log_cost: float
    cap: float  # (L+1)/rho
    scale: float  # 2(L+1)m/rho


def constants(shape: tuple[int, int, int, int], rho: float, episodes: int, delta: float = 0.05) -> Constants:
    """Of a CMDP with (layers, states, actions, constraints); |X| counts x_0 and x_L once each."""
    n_layers, n_states, n_actions, m = shape
    pairs = (n_states * (n_layers - 1) + 2) * n_actions
    eta = min(1 / (24 * n_layers**3), 1 / math.sqrt(pairs * n_layers * episodes))
    log = math.log(episodes * pairs / delta)
    cap = (n_layers + 1) / rho
    return Constants(eta, 2 * eta * n_layers, log, log, log + math.log(m), cap, 2 * m * cap)


class Naive:
    """CPD-PO's state; `episode` plays and learns."""

    def __init__(self, model: Model, c: Constants):
        self.model, self.c = model, c
        self.shape = n_layers, n_states, n_actions = model.payoff.shape[1:]
        self.weights = np.zeros(self.shape)
        self.visits = np.zeros(self.shape)
        self.at_epoch = np.zeros(self.shape)
        self.moves = np.zeros((n_layers - 1, n_states, n_actions, n_states))
        self.sums = np.zeros_like(model.payoff)
        self.lower, self.upper = np.zeros_like(self.moves), np.ones_like(self.moves)
        self.epochs = 1

    def episode(self, u: np.ndarray) -> tuple[np.ndarray, list[tuple[int, int]], np.ndarray, np.ndarray]:
        """One episode on the uniforms [L,3+M]: the policy played, pairs visited, multipliers, gaps."""
        model, c = self.model, self.c
        n_layers, m = self.shape[0], len(model.threshold)
        policy = np.exp(self.weights - self.weights.max(axis=2, keepdims=True))
        policy /= policy.sum(axis=2, keepdims=True)
        gaps = np.array([value(model.transition, policy, payoff) for payoff in model.payoff])
        gaps = np.concatenate([[model.optimum - gaps[0]], gaps[1:] - model.threshold])

        pairs, x = [], 0  # lines 4 to 6: play, observe, count
        for k in range(n_layers):
            a = _draw(policy[k, x], u[k, 0])
            pairs.append((x, a))
            self.visits[k, x, a] += 1
            self.sums[:, k, x, a] += u[k, 2:] < model.payoff[:, k, x, a]
            if k < n_layers - 1:
                y = _draw(model.transition[k, x, a], u[k, 1])
                self.moves[k, x, a, y] += 1
                x = y
        n = np.maximum(self.visits, 1)
        estimate = self.moves / n[:-1, :, :, None]
        reward = self.sums[0] / n + np.minimum(1, np.sqrt(4 * c.log_reward / n))
        cost = self.sums[1:] / n - np.minimum(1, np.sqrt(4 * c.log_cost / n))
        multipliers = np.zeros(m)  # line 7
        for i in range(m):
            if value(estimate, policy, cost[i]) > model.threshold[i]:
                multipliers[i] = c.cap
        loss = np.zeros(n_layers)  # line 8
        for k, (x, a) in enumerate(pairs):
            penalty = multipliers @ (cost[:, k, x, a] - model.threshold / n_layers)
            loss[k] = (c.cap * m - reward[k, x, a] + penalty) / c.scale
        self._podb(policy, pairs, loss)  # line 9
        return policy, pairs, multipliers, gaps

    def _podb(self, policy: np.ndarray, pairs: list[tuple[int, int]], loss: np.ndarray) -> None:
        """PO-DB's update, and its epochs."""
        c = self.c
        n_layers, n_states, n_actions = self.shape
        low, up = self._reach(policy, -1), self._reach(policy, 1)
        bonus = np.zeros(self.shape)
        ahead = np.zeros(n_states)
        for k in reversed(range(n_layers)):
            for x in range(n_states):
                q_up, q_low = up[k, x] * policy[k, x], low[k, x] * policy[k, x]
                ratio = (3 * c.exploration * n_layers + n_layers * (q_up - q_low)) / (q_up + c.exploration)
                bonus[k, x] = policy[k, x] @ ratio
                if k < n_layers - 1:
                    for a in range(n_actions):
                        best = extreme(self.lower[k, x, a], self.upper[k, x, a], ahead, 1)
                        bonus[k, x, a] += (1 + 1 / n_layers) * best
            ahead = (policy[k] * bonus[k]).sum(axis=1)
        self.weights += c.learning_rate * bonus
        for k, (x, a) in enumerate(pairs):
            q_hat = loss[k:].sum() / (up[k, x] * policy[k, x, a] + c.exploration)
            self.weights[k, x, a] -= c.learning_rate * q_hat
        if any(self.visits[k, x, a] >= max(1, 2 * self.at_epoch[k, x, a]) for k, (x, a) in enumerate(pairs)):
            self.epochs += 1
            self.at_epoch = self.visits.copy()
            n = np.maximum(self.visits, 1)[:-1, :, :, None]
            estimate = self.moves / n
            width = 4 * np.sqrt(estimate * c.log_transition / n) + 28 * c.log_transition / (3 * n)
            unseen = self.visits[:-1, :, :, None] == 0
            self.lower = np.where(unseen, 0, np.maximum(estimate - width, 0))
            self.upper = np.where(unseen, 1, np.minimum(estimate + width, 1))

    def _reach(self, policy: np.ndarray, sign: int) -> np.ndarray:
        """The largest (sign 1) or smallest (-1) probability of reaching each state: one recursion per state."""
        n_layers, n_states, n_actions = self.shape
        bound = np.zeros((n_layers, n_states))
        bound[0, 0] = 1
        for h in range(1, n_layers):
            for target in range(n_states):
                f = np.eye(n_states)[target]
                for k in reversed(range(h)):
                    before = np.zeros(n_states)
                    for x in range(n_states if k else 1):
                        for a in range(n_actions):
                            best = extreme(self.lower[k, x, a], self.upper[k, x, a], f, sign)
                            before[x] += policy[k, x, a] * best
                    f = before
                bound[h, target] = f[0]
        return bound


def value(transition: np.ndarray, policy: np.ndarray, payoff: np.ndarray) -> float:
    """V(x_0) by backward recursion."""
    ahead = (policy[-1] * payoff[-1]).sum(axis=1)
    for k in reversed(range(len(transition))):
        ahead = (policy[k] * (payoff[k] + transition[k] @ ahead)).sum(axis=1)
    return float(ahead[0])


def extreme(lower: np.ndarray, upper: np.ndarray, f: np.ndarray, sign: int) -> float:
    """The largest (sign 1) or smallest (-1) p.f in the box: hand out what is left in the order of f."""
    p, left = lower.copy(), 1 - lower.sum()
    for j in np.argsort(-sign * f):
        given = min(max(left, 0), upper[j] - lower[j])
        p[j] += given
        left -= given
    return float(p @ f)


def _draw(probabilities: np.ndarray, u: float) -> int:
    return int(min((np.cumsum(probabilities) <= u).sum(), len(probabilities) - 1))
