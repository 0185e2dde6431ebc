"""A family on which primal-dual methods oscillate."""

from __future__ import annotations

import numpy as np

from cpdpo_jax.common.types import CMDP
from cpdpo_jax.envs.build import make_cmdp
from cpdpo_jax.envs.parameters import integer, number
from cpdpo_jax.envs.streams import drawn


def hard(
    *,
    layers: int = 3,
    states: int = 2,
    constraints: int = 1,
    share: float = 0.5,
    noise: str = "bernoulli",
    key: int = 0,
    instances: int | None = None,
) -> CMDP:
    """A flat Lagrangian: primal-dual methods cycle around the optimum, so weak and strong metrics diverge.

    Action 0 neither pays nor costs. Action i = 1..m pays the multiplier lambda_i times what it costs,
    r(x, i) = lambda_i g_i(x, i), g_i(x, i) = c(x), and costs nothing to the other constraints; the next state is drawn
    from the layer's own distribution for every action. The threshold of each constraint is `share`/m of what
    action i alone would cost. Hence r - lambda.g = 0 for every policy at the optimal lambda: the Lagrangian is
    bilinear without curvature, as in matching pennies. Below lambda_i, a best response plays i everywhere and violates
    constraint i by (1 - share/m) of its cost; above lambda_i, it never plays i and loses all its reward. Gradient steps
    on both sides circle around the saddle point. Signed violations cancel over a cycle, so weak violation stays small,
    while strong violation grows linearly: the exact primal-dual method (known model, steps 1/sqrt(T)) has a strong
    violation of 1473 and a weak one of 126 at T = 8000. On a random instance it has no linear growth
    (`tests/envs/test_hard.py`). No deterministic policy and no best response is close to the optimum, which mixes.
    Drawn by `key` in this order: lambda ~ U(.5, 1) `[m]`, c ~ U(.5, 1) `[L, S]`, next states ~ Dirichlet(1) `[L-1, S]`.
    """
    n_layers, n, m = integer("layers", layers, 1), integer("states", states, 1), integer("constraints", constraints, 1)
    share = number("share", share, 0, 1, open_low=True, open_high=True)

    def draw(rng: np.random.Generator, name: str) -> CMDP:
        multipliers, weight = rng.uniform(0.5, 1, m), rng.uniform(0.5, 1, (n_layers, n))
        ahead = rng.dirichlet(np.ones(n), size=n_layers - 1)
        cost = np.zeros((m, n_layers, n, m + 1))
        for i in range(m):
            cost[i, :, :, i + 1] = weight
        there = np.concatenate([np.eye(n)[:1], ahead])  # the distribution over each layer
        full = float((there * weight).sum())  # the cost of playing one action alone
        transition = np.broadcast_to(ahead[:, None, None, :], (n_layers - 1, n, m + 1, n))
        reward = np.tensordot(multipliers, cost, 1)
        return make_cmdp(transition, reward, cost, np.full(m, share / m * full), noise=noise, name=name)

    return drawn(draw, "hard", key, instances)
