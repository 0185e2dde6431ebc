"""Step 1 of CPD-OPPO: widths, and the most optimistic values of a policy under the empirical model.

`cpd_oppo` has the formulas.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.kernels.loops import unrolled_sum
from cpdpo_jax.kernels.optimistic import optimistic_evaluation, scaled_widths
from cpdpo_jax.learners.base import Problem
from cpdpo_jax.learners.estimates import Estimates


class Evaluation(NamedTuple):
    """Optimistic values of pi_t."""

    payoff_width: jax.Array  # [L,S,A,B] beta
    transition_width: jax.Array  # [L,S,A,B] w
    action_values: jax.Array  # [1+M,L,S,A,B] Q^r, then Q^{g_i}
    values: jax.Array  # [1+M,B] V^r(x_0), then V^{g_i}(x_0)


def scales(problem: Problem, hyper: Any, visits: jax.Array) -> jax.Array:
    """w and beta without their 1/sqrt(n), [L,B]: of w in layers 0..L-2, then of beta."""
    dtype, m = problem.threshold.dtype, problem.threshold.shape[0]
    t = unrolled_sum(visits.shape[2], lambda a: visits[0, 0, a]).astype(dtype)  # every episode starts in x_0
    horizon = jnp.where(hyper.anytime > 0, t * (t + 1), problem.episodes)
    log_pairs = jnp.log(8 * problem.n_states * problem.n_actions / problem.delta) + jnp.log(horizon)  # [B]
    payoffs = hyper.payoff_confidence * (log_pairs + float(np.log(m)))
    real = problem.action_mask.any(axis=2)[1:].astype(dtype)
    arrivals = unrolled_sum(real.shape[1], lambda y: real[:, y])  # [L-1,B] |X_{k+1}|
    rows = 2 * hyper.transition_confidence * (arrivals * float(np.log(2)) + log_pairs)
    return jnp.sqrt(jnp.concatenate([rows, payoffs[None]]))


def evaluate(problem: Problem, hyper: Any, estimates: Estimates, policy: jax.Array) -> Evaluation:
    """pi_t with rewards raised and costs lowered by the widths, backwards through the empirical model."""
    scale = jnp.broadcast_to(scales(problem, hyper, estimates.visits), (len(policy), *policy.shape[3:]))
    counts = estimates.transitions, estimates.visits
    action_values, values = optimistic_evaluation(*counts, policy, estimates.payoff_sum, scale.astype(policy.dtype))
    return Evaluation(*scaled_widths(estimates.visits, scale), action_values, values)
