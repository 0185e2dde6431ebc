"""Three hand-sized CMDPs: factored, simple, difficult."""

from __future__ import annotations

import numpy as np

from cpdpo_jax.common.types import CMDP
from cpdpo_jax.envs.episodic import from_episodic
from cpdpo_jax.envs.parameters import integer, number, thresholds

STAY, MOVE = 0, 1
A, B = 0, 1


def factored(*, horizon: int = 6, threshold: float = 3.0, states: int = 3, noise: str = "bernoulli") -> CMDP:
    """Factored CMDP (DOPE, after Zheng and Ratliff 2020): moving around a ring pays and is allowed half of the time.

    3 states, 2 actions, H = 6. Action 0 stays; action 1 moves to s + 1 mod 3, pays (s + 1)/3 and costs 1; start 0;
    cost at most 3.
    """
    n = integer("states", states, 1)
    return _ring("factored", n, n, 0, horizon, threshold, noise)


def simple(*, horizon: int = 6, threshold: float = 3.0, states: int = 3, noise: str = "bernoulli") -> CMDP:
    """The simple CMDP of AlwaysSafe (Simao et al. 2021): `factored` with reward s + 1 and a uniform start.

    3 states, 2 actions, H = 6; 7 layers, the first of which draws the start. Cost at most 3.
    """
    n = integer("states", states, 1)
    return _ring("simple", n, 1, np.full(n, 1 / n), horizon, threshold, noise)


def difficult(*, horizon: int = 3, threshold: float = 0.1, low: float = 0.1, noise: str = "bernoulli") -> CMDP:
    """The difficult CMDP of AlwaysSafe (Simao et al. 2021): the likely branch has the reward and the cost.

    6 states, 2 actions, H = 3; 4 layers, the first of which draws the start. State (x, y), x in 0..2, y in 0..1,
    numbered 2x + y; start uniform over (0,0), (0,1). From x = 0 every action leads to (1,0) with probability `low` =
    .1, else to (1,1); from x = 1 to (2,y), where action A = 0 costs 1 and reward 1 is for B = 1 if y = 0, for A if
    y = 1; x = 2 absorbs, without reward or cost. Cost at most .1.
    """
    chance = number("low", low, 0, 1)
    transition, reward, cost = np.zeros((6, 2, 6)), np.zeros((6, 2)), np.zeros((1, 6, 2))
    transition[:2, :, 2], transition[:2, :, 3] = chance, 1 - chance
    for y in (0, 1):
        transition[2 + y, :, 4 + y] = transition[4 + y, :, 4 + y] = 1.0
        cost[0, 2 + y, A] = 1.0
    reward[2, B] = reward[3, A] = 1.0
    return from_episodic(
        transition,
        reward,
        cost,
        thresholds("threshold", threshold, 1),
        horizon=integer("horizon", horizon, 2),
        initial=np.array([0.5, 0.5, 0, 0, 0, 0]),
        noise=noise,
        name="difficult",
    )


def _ring(name, n, unit, initial, horizon, threshold, noise) -> CMDP:
    """n states; a move to the next state pays (s + 1) / unit and costs 1."""
    transition, reward, cost = np.zeros((n, 2, n)), np.zeros((n, 2)), np.zeros((1, n, 2))
    for s in range(n):
        transition[s, STAY, s] = transition[s, MOVE, (s + 1) % n] = 1.0
        reward[s, MOVE], cost[0, s, MOVE] = (s + 1.0) / unit, 1.0
    return from_episodic(
        transition,
        reward,
        cost,
        thresholds("threshold", threshold, 1),
        horizon=integer("horizon", horizon, 1),
        initial=initial,
        noise=noise,
        name=name,
    )
