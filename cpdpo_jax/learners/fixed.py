"""Policies that do not learn: the yardsticks of every curve."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cpdpo_jax.common.types import Trajectory
from cpdpo_jax.learners import base
from cpdpo_jax.learners.base import Info, Learner, NoHyperparameters, Problem
from cpdpo_jax.learners.estimates import Estimates, empty, observe

ABOUT = {  # the module's docstring says nothing of each
    "uniform": "Every allowed action equally often: the yardstick of a learner that learns nothing.\n\n"
    "It counts what it sees, so that rho can be estimated from it.",
    "lp_optimal": "The exact optimum, handed over: no regret and no violation, up to the noise of the arithmetic.",
    "unconstrained_optimal": "The best policy that ignores the constraints, handed over.\n\n"
    "Its weak regret is negative, and its violation grows linearly.",
}


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
UNCONSTRAINED_OPTIMAL = _yardstick("unconstrained_optimal", "unconstrained_policy")
