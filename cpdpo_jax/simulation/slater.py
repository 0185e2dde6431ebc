"""Estimating the Slater margin from what was seen, for those who do not know it."""

from __future__ import annotations

import numpy as np

from cpdpo_jax.exact import optimum
from cpdpo_jax.learners.base import Problem
from cpdpo_jax.learners.estimates import Estimates

MARGIN_FLOOR = 0.01  # times L: the least Slater margin that an estimate returns


def plug_in_slater_margin(problem: Problem, estimates: Estimates) -> np.ndarray:
    """rho of the empirical CMDP of each lane (an LP on the host), [B], at least `MARGIN_FLOOR` L.

    For those who do not know rho, after a stated number of first episodes. A plug-in estimate with no confidence
    correction: too large a rho makes the dual cap too small, too small a rho slows learning down. A pair never
    visited is taken to move uniformly and to cost nothing.
    """
    mask: np.ndarray = np.asarray(problem.action_mask)
    visits, transitions = np.asarray(estimates.visits), np.asarray(estimates.transitions)
    n = np.maximum(visits, 1)
    real = mask[1:].any(axis=2).astype(float)  # [L-1,S,B]
    blank = (real / np.maximum(real.sum(axis=1, keepdims=True), 1))[:, None, None]
    transition = np.where(visits[:-1, :, :, None] > 0, transitions / n[:-1, :, :, None], blank)
    cost, threshold = np.asarray(estimates.payoff_sum[1:], float) / n, np.asarray(problem.threshold, float)
    margins = [
        optimum.slater_margin(transition[..., b], cost[..., b], threshold[:, b], mask[..., b])
        for b in range(visits.shape[-1])
    ]
    return np.maximum(margins, MARGIN_FLOOR * mask.shape[0])
