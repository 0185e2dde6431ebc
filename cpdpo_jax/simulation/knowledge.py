"""Extra knowledge for learners that declare to need more than the paper's learner receives.

There is one kind, a strictly safe policy. It is computed from the exact solution: a mixture of the occupancy measures
of the Slater policy and of the optimum, such that every constraint keeps the requested share of the Slater margin.
"""

from __future__ import annotations

import numpy as np

from cpdpo_jax.common.types import CMDP
from cpdpo_jax.exact.lp import evaluate, occupancy
from cpdpo_jax.exact.optimum import Solution
from cpdpo_jax.learners.base import Learner, Problem, SafePolicy


def problem_for(learner: Learner, problem: Problem, cmdp: CMDP, solution: Solution, safety: float) -> Problem:
    """The problem as given to this learner, [instances], with the extra knowledge that it declares and nothing else."""
    if learner.extra_knowledge is None:
        return problem
    short = np.flatnonzero(np.asarray(solution.slater_margin) <= 1e-9)
    if len(short):
        raise ValueError(
            f"learner {learner.name!r} needs a strictly safe policy, but instance {cmdp.names[short[0]]!r} has none "
            "(its Slater margin is 0); loosen its thresholds, or remove the learner."
        )
    return problem._replace(safe=safe_policy(cmdp, solution, safety))


def safe_policy(cmdp: CMDP, solution: Solution, safety: float) -> SafePolicy:
    """pi_b of q = safety q_slater + (1 - safety) q_optimum, and its costs; alpha_i - C_b,i >= safety rho for every i.

    For a batch, [..., instances]. In states that neither policy reaches, pi_b is the Slater policy.
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
