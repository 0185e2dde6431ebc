"""Fixed reference policies."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cpdpo_jax.common.types import Trajectory
from cpdpo_jax.kernels import uniform_policy
from cpdpo_jax.learners import base
from cpdpo_jax.learners.base import Info, Learner, NoHyperparameters, Problem
from cpdpo_jax.learners.estimates import Estimates, empty, observe

ABOUT = {  # descriptions, because the module's docstring describes none of them
    "uniform": "Plays every allowed action with equal probability: a baseline that learns nothing.\n\n"
    "It counts visits, so that rho can be estimated.",
    "lp_optimal": "Plays the exact optimum, which it is given: no regret or violation up to rounding.",
    "unconstrained_optimal": "Plays the best policy that ignores the constraints, which it is given.\n\n"
    "Its weak regret is negative, and its violation grows linearly.",
}


class KnownPolicy(NamedTuple):
    """The policy of a reference, in place of hyperparameters."""

    policy: jax.Array  # [L,S,A,B]


def no_info(problem: Problem) -> Info:
    """`Info` of a learner without multipliers and epochs."""
    return Info(jnp.zeros_like(problem.threshold), jnp.zeros(problem.threshold.shape[1:], jnp.int32))


def _update(
    problem: Problem, hyper: Any, state: Estimates, policy: jax.Array, trajectory: Trajectory
) -> tuple[Estimates, Info]:
    return observe(state, trajectory), no_info(problem)


UNIFORM = base.register(
    Learner(
        name="uniform",
        hyperparameters=lambda problem, preset: NoHyperparameters(),
        init=lambda problem, hyper: empty(problem, as_sampled=True),
        policy=lambda problem, hyper, state: uniform_policy(problem.action_mask, problem.threshold.dtype),
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
