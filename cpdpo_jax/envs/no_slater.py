"""Feasible CMDPs in which no policy is strictly feasible: the Slater margin is 0."""

from __future__ import annotations

import numpy as np

from cpdpo_jax.common.types import CMDP
from cpdpo_jax.envs.build import make_cmdp
from cpdpo_jax.envs.parameters import integer, number
from cpdpo_jax.envs.streams import drawn
from cpdpo_jax.exact.lp import evaluate, plan


def least_cost(
    *,
    layers: int = 4,
    states: int = 3,
    actions: int = 3,
    noise: str = "bernoulli",
    key: int = 0,
    instances: int | None = None,
) -> CMDP:
    """The threshold is the least possible cost, so no policy is strictly feasible; many policies attain it.

    All actions but the last have the cost c_k, the same in every state of layer k; the last action has a larger cost
    and a larger reward. The threshold is c_0 + ... + c_{L-1}: a policy is feasible if and only if it never plays the
    last action in a state that it reaches. The feasible policies differ in reward and in where they go, so that regret
    is not trivially 0, and all costs are noisy, so that feasibility must be learnt. The optimal dual solutions are
    [Lambda, infinity), Lambda = the largest ratio of reward gained to cost added.
    Drawn by `key` in this order: c ~ U(.1, .4) `[L]`, added cost ~ U(.2, .5) `[L, S]`, P ~ Dirichlet(1) `[L-1, S, A,
    S]`, rewards ~ U(0, .8) `[L, S, A-1]`, excess reward of the last action over the best of these ~ U(.05, .2)
    `[L, S]`.
    """
    n_layers, n, a = integer("layers", layers, 1), integer("states", states, 1), integer("actions", actions, 2)

    def draw(rng: np.random.Generator, name: str) -> CMDP:
        base, added = rng.uniform(0.1, 0.4, n_layers), rng.uniform(0.2, 0.5, (n_layers, n))
        transition = rng.dirichlet(np.ones(n), size=(n_layers - 1, n, a))
        modest = rng.uniform(0, 0.8, (n_layers, n, a - 1))
        tempting = modest.max(axis=2) + rng.uniform(0.05, 0.2, (n_layers, n))
        reward = np.concatenate([modest, tempting[:, :, None]], axis=2)
        cost = np.tile(base[:, None, None], (1, n, a))
        cost[:, :, -1] += added
        return make_cmdp(transition, reward, cost[None], [base.sum()], noise=noise, name=name)

    return drawn(draw, "least_cost", key, instances)


def fixed_cost(
    *,
    layers: int = 4,
    states: int = 3,
    actions: int = 3,
    share: float = 0.5,
    noise: str = "bernoulli",
    key: int = 0,
    instances: int | None = None,
) -> CMDP:
    """Two opposite constraints whose intersection is a point: the expected cost must be exactly c.

    g_2 = 1 - g_1 and thresholds (c, L - c), so V(g_1) <= c and V(g_2) <= L - c leave V(g_1) = c. `share` places c
    between the least cost (0) and the cost of the unconstrained optimum (1); the optimum mixes two policies. If
    lambda is an optimal dual solution, so is lambda + s (1, 1) for s >= 0; the least solution has an entry 0.
    Drawn by `key` in this order: P ~ Dirichlet(1) `[L-1, S, A, S]`, r ~ U(0, 1) `[L, S, A]`, g_1 ~ U(0, 1) `[L, S, A]`.
    """
    n_layers, n, a = integer("layers", layers, 1), integer("states", states, 1), integer("actions", actions, 2)
    share = number("share", share, 0, 1, open_low=True, open_high=True)

    def draw(rng: np.random.Generator, name: str) -> CMDP:
        transition = rng.dirichlet(np.ones(n), size=(n_layers - 1, n, a))
        reward, cost = rng.random((n_layers, n, a)), rng.random((n_layers, n, a))
        allowed = np.ones(reward.shape, bool)
        _, greedy = plan(transition, reward, allowed)
        free, least = float(evaluate(transition, greedy, cost[None])[0]), -plan(transition, -cost, allowed)[0]
        c = share * free + (1 - share) * least
        return make_cmdp(transition, reward, np.stack([cost, 1 - cost]), [c, n_layers - c], noise=noise, name=name)

    return drawn(draw, "fixed_cost", key, instances)
