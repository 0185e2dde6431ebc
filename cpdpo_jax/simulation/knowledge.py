"""Extra knowledge: what some learners are handed beyond the paper's setting, because they declare that they need it.

The one kind there is, a strictly safe policy, is made of the exact solution: the occupancy measure of the Slater policy
mixed with that of the optimum, so that all constraints keep the asked share of the Slater margin.
"""

from __future__ import annotations

import numpy as np

from cpdpo_jax.common.types import CMDP
from cpdpo_jax.exact.lp import evaluate, occupancy
from cpdpo_jax.exact.optimum import Solution
from cpdpo_jax.learners.base import Learner, Problem, SafePolicy


def problem_for(learner: Learner, problem: Problem, cmdp: CMDP, solution: Solution, safety: float) -> Problem:
    """The problem as this learner is handed it, [instances]: with what it declares to need, and with nothing else."""
    if learner.extra_knowledge is None:
        return problem
    short = np.flatnonzero(np.asarray(solution.slater_margin) <= 1e-9)
    if len(short):
        raise ValueError(
            f"learner {learner.name!r} must be handed a strictly safe policy, and instance {cmdp.names[short[0]]!r} "
            "has none (its Slater margin is 0); loosen its thresholds, or leave the learner out."
        )
    return problem._replace(safe=safe_policy(cmdp, solution, safety))


def safe_policy(cmdp: CMDP, solution: Solution, safety: float) -> SafePolicy:
    """pi_b of q = safety q_slater + (1 - safety) q_optimum, and its costs; alpha_i - C_b,i >= safety rho for every i.

    Of a batch, [..., instances]. In states that neither reaches pi_b is the Slater policy.
    """
    policies, costs = [], []
    for b in range(cmdp.batch_shape[0]):
        transition, safest = np.asarray(cmdp.transition)[..., b], np.asarray(solution.slater_policy)[..., b]
        best = np.asarray(solution.policy)[..., b]
        q = safety * occupancy(transition, safest) + (1 - safety) * occupancy(transition, best)
        reached = q.sum(axis=2, keepdims=True)
        policies.append(np.where(reached > 0, q / np.where(reached > 0, reached, 1.0), safest))
        costs.append(evaluate(transition, policies[-1], np.asarray(cmdp.cost)[..., b]))
    return SafePolicy(policy=np.stack(policies, axis=-1), cost=np.stack(costs, axis=-1))
