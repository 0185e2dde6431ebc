"""Estimation of the Slater margin from observed counts and costs."""

from __future__ import annotations

import numpy as np

from cpdpo_jax.exact import optimum
from cpdpo_jax.learners.base import Problem
from cpdpo_jax.learners.estimates import Estimates

MARGIN_FLOOR = 0.01  # times L: the smallest Slater margin that an estimate returns


def plug_in_slater_margin(problem: Problem, estimates: Estimates) -> np.ndarray:
    """rho of the empirical CMDP of each lane (an LP on the host), [B], at least `MARGIN_FLOOR` L.

    Used after a given number of exploration episodes if rho is unknown. It is a plug-in estimate without confidence
    correction: too large a rho makes the dual cap too small, too small a rho slows learning. Unvisited pairs are
    assumed to have uniform transitions and zero costs.
    """
    mask: np.ndarray = np.asarray(problem.action_mask)
    visits, transitions = np.asarray(estimates.visits), np.asarray(estimates.transitions)
    n = np.maximum(visits, 1)
    real = mask[1:].any(axis=2).astype(float)  # [L-1,S,B]
    uniform = (real / np.maximum(real.sum(axis=1, keepdims=True), 1))[:, None, None]
    transition = np.where(visits[:-1, :, :, None] > 0, transitions / n[:-1, :, :, None], uniform)
    cost, threshold = np.asarray(estimates.payoff_sum[1:], float) / n, np.asarray(problem.threshold, float)
    margins = [
        optimum.slater_margin(transition[..., b], cost[..., b], threshold[:, b], mask[..., b])
        for b in range(visits.shape[-1])
    ]
    return np.maximum(margins, MARGIN_FLOOR * mask.shape[0])
