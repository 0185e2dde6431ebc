"""Policies that do not learn: the yardsticks of every curve."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common.types import Trajectory
from cpdpo_jax.exact import optimum
from cpdpo_jax.learners import base
from cpdpo_jax.learners.base import Info, Learner, NoHyperparameters, Problem
from cpdpo_jax.learners.estimates import Estimates, empty, observe

MARGIN_FLOOR = 0.01  # times L: the least Slater margin that an estimate returns


class KnownPolicy(NamedTuple):
    """What a yardstick is handed in place of hyperparameters."""

    policy: jax.Array  # [L,S,A,B]


def no_info(problem: Problem) -> Info:
    """For a learner without multipliers and epochs."""
    return Info(jnp.zeros_like(problem.threshold), jnp.zeros(problem.threshold.shape[1:], jnp.int32))


def _update(
    problem: Problem, hyper: Any, state: Estimates, policy: jax.Array, trajectory: Trajectory
) -> tuple[Estimates, Info]:
    return observe(state, trajectory), no_info(problem)


UNIFORM = base.register(
    Learner(
        name="uniform",
        hyperparameters=lambda problem, preset: NoHyperparameters(),
        init=lambda problem, hyper: empty(problem),
        policy=lambda problem, hyper, state: base.uniform_policy(problem.action_mask, problem.threshold.dtype),
        update=_update,
    )
)
"""The uniform distribution over the allowed actions; counts what it sees, so that rho can be estimated from it."""


def _yardstick(name: str, plays: str) -> Learner:
    return base.register(
        Learner(
            name=name,
            hyperparameters=lambda problem, preset: NoHyperparameters(),
            init=lambda problem, hyper: jnp.zeros_like(problem.threshold),
            policy=lambda problem, hyper, state: hyper.policy,
            update=lambda problem, hyper, state, policy, trajectory: (state, no_info(problem)),
            plays=plays,
        )
    )


LP_OPTIMAL = _yardstick("lp_optimal", "policy")
"""The exact optimum: no regret and no violation, up to the noise floor of the arithmetic."""

UNCONSTRAINED_OPTIMAL = _yardstick("unconstrained_optimal", "unconstrained_policy")
"""The best policy that ignores the constraints: weak regret below 0, and linear violation."""


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
    cost = np.asarray(estimates.payoff_sum[1:], float) / n
    margins = [
        optimum.slater_margin(
            transition[..., b], cost[..., b], np.asarray(problem.threshold, float)[:, b], mask[..., b]
        )
        for b in range(visits.shape[-1])
    ]
    return np.maximum(margins, MARGIN_FLOOR * mask.shape[0])
