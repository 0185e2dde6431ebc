"""Inventory control: how much to order before the demand is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cpdpo_jax.common.types import CMDP
from cpdpo_jax.envs.episodic import from_episodic
from cpdpo_jax.envs.parameters import integer, number, thresholds

DEMAND = (0.3, 0.2, 0.2, 0.2, 0.05, 0.05)


def inventory(
    *,
    horizon: int = 7,
    threshold: float = 3.5,
    demand: Sequence[float] = DEMAND,
    price: float = 0.08,
    order_cost: float = 4.0,
    unit_cost: float = 2.0,
    holding_cost: float = 1.0,
    noise: str = "bernoulli",
) -> CMDP:
    """Inventory control (DOPE, Bura et al. 2022): earn by selling, with the cost of orders and stock bounded.

    6 states, at most 6 actions, H = 7. State s is the stock 0..5, start 0; order a in 0..5-s (orders that do not fit
    are masked). The demand D has the given distribution; s' = max(0, s + a - D). Reward: `price` for each unit sold,
    min(D, s + a), averaged over the demand. Cost: (4 + 2a if a > 0) + (s + a), at most 3.5 over the episode. Both
    are divided by their largest entry, which is the unit in which the source states its threshold.
    Deviation: the public code weights the revenue f(d) by P(s' = d), as if the next stock were the demand. Here it is
    weighted by the demand's own distribution, with d the units sold: demand beyond the stock brings no revenue.
    """
    law = np.array(demand, float)
    if law.ndim != 1 or len(law) < 2 or not (law >= 0).all() or abs(law.sum() - 1) > 1e-9:
        raise ValueError(f"demand = {demand!r}; give the probabilities of a demand of 0, 1, ..., n, which sum to 1.")
    n = len(law)  # the largest stock is the largest demand
    price = number("price", price, 0, np.inf, open_low=True)
    order_cost, unit_cost, holding_cost = (
        number(name, value, 0, np.inf)
        for name, value in (("order_cost", order_cost), ("unit_cost", unit_cost), ("holding_cost", holding_cost))
    )
    transition, revenue, cost = np.zeros((n, n, n)), np.zeros((n, n)), np.zeros((1, n, n))
    allowed = np.add.outer(np.arange(n), np.arange(n)) < n
    for s, a in np.argwhere(allowed):
        for d, chance in enumerate(law):
            transition[s, a, max(0, s + a - d)] += chance
            revenue[s, a] += chance * price * min(d, s + a)
        cost[0, s, a] = (order_cost + unit_cost * a if a > 0 else 0.0) + holding_cost * (s + a)
    if not cost.any() or not revenue.any():
        raise ValueError(
            f"order_cost = {order_cost}, demand = {demand}: all costs or all revenues are 0; increase one."
        )
    return from_episodic(
        transition,
        revenue / revenue.max(),
        cost / cost.max(),
        thresholds("threshold", threshold, 1),
        horizon=integer("horizon", horizon, 1),
        action_mask=allowed,
        noise=noise,
        name="inventory",
    )
