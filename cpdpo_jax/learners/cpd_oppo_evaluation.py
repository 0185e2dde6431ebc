"""Step 1 of CPD-OPPO: widths, and the most optimistic values of a policy under the empirical model.

The formulas stand in `cpd_oppo`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.kernels import for_accelerator, replaced_by, truncated_evaluation, unrolled_sum
from cpdpo_jax.kernels.accelerator import together
from cpdpo_jax.learners import optimistic
from cpdpo_jax.learners.base import Problem
from cpdpo_jax.learners.estimates import Estimates


class Evaluation(NamedTuple):
    """What pi_t looks like at its most optimistic."""

    payoff_width: jax.Array  # [L,S,A,B] beta
    transition_width: jax.Array  # [L,S,A,B] w
    action_values: jax.Array  # [1+M,L,S,A,B] Q^r, then Q^{g_i}
    values: jax.Array  # [1+M,B] V^r(x_0), then V^{g_i}(x_0)


def scales(problem: Problem, hyper: Any, visits: jax.Array) -> jax.Array:
    """w and beta without their 1/sqrt(n), [L,B]: of w in layers 0..L-2, then of beta."""
    dtype, m = problem.threshold.dtype, problem.threshold.shape[0]
    t = unrolled_sum(visits.shape[2], lambda a: visits[0, 0, a]).astype(dtype)  # every episode begins in x_0
    horizon = jnp.where(hyper.anytime > 0, t * (t + 1), problem.episodes)
    log_pairs = jnp.log(8 * problem.n_states * problem.n_actions / problem.delta) + jnp.log(horizon)  # [B]
    payoffs = hyper.payoff_confidence * (log_pairs + float(np.log(m)))
    real = problem.action_mask.any(axis=2)[1:].astype(dtype)
    arrivals = unrolled_sum(real.shape[1], lambda y: real[:, y])  # [L-1,B] |X_{k+1}|
    rows = 2 * hyper.transition_confidence * (arrivals * float(np.log(2)) + log_pairs)
    return jnp.sqrt(jnp.concatenate([rows, payoffs[None]]))


def widths(visits: jax.Array, scale: jax.Array) -> tuple[jax.Array, jax.Array]:
    """beta and w, [L,S,A,B] each, of `scales` [L,B]; w is 0 in the last layer, whose step to x_L is known."""
    root = jnp.sqrt(1 / jnp.maximum(visits, 1).astype(scale.dtype))  # 1 / sqrt(n), of which all widths are multiples
    unseen, scale = visits == 0, scale[:, None, None]
    if for_accelerator():  # its slices would be kernels
        scale = together(scale)
    w = jnp.where(unseen[:-1], 2, jnp.minimum(2, scale[:-1] * root[:-1]))
    beta = jnp.where(unseen, 1, jnp.minimum(1, scale[-1] * root))
    return beta, jnp.concatenate([w, jnp.zeros_like(root[-1:])])


def evaluate(problem: Problem, hyper: Any, estimates: Estimates, policy: jax.Array) -> Evaluation:
    """pi_t with rewards raised and costs lowered by the widths, backwards through the empirical model."""
    scale = scales(problem, hyper, estimates.visits)
    beta, w = widths(estimates.visits, scale)
    if for_accelerator():
        payoffs, estimates = _payoffs_of_one_kernel(estimates, beta, w)
        visits = jnp.maximum(estimates.visits, 1).astype(policy.dtype)
        return Evaluation(beta, w, *_truncated(estimates.transitions, visits, policy, payoffs))
    scale = jnp.broadcast_to(scale, (len(policy), *policy.shape[3:])).astype(policy.dtype)  # as numba's kernel wants it
    call = replaced_by("optimistic_evaluation", _evaluate, policy.shape[1], policy.shape[3:], policy.dtype)
    return Evaluation(beta, w, *call(estimates.transitions, estimates.visits, policy, estimates.payoff_sum, scale))


def _evaluate(
    transitions: jax.Array, visits: jax.Array, policy: jax.Array, payoff_sum: jax.Array, scale: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Action values [1+M,L,S,A,B] and values of x_0 [1+M,B]."""
    beta, w = widths(visits, scale)
    n = jnp.maximum(visits, 1).astype(policy.dtype)
    mean, reach = payoff_sum * (1 / n), _reach(w)
    payoffs = jnp.concatenate([jnp.minimum(1, mean[:1] + beta) + reach, jnp.maximum(0, mean[1:] - beta) - reach])
    return _truncated(transitions, n, policy, payoffs)


def _payoffs_of_one_kernel(estimates: Estimates, beta: jax.Array, w: jax.Array) -> tuple[jax.Array, Estimates]:
    """For an accelerator: payoffs leave one kernel with the sums, whose old entries would be copied for a second."""
    mean, reach = estimates.payoff_sum * (1 / jnp.maximum(estimates.visits, 1).astype(w.dtype)), _reach(w)
    is_reward = (jnp.arange(len(mean)) == 0).reshape(-1, *(1,) * w.ndim)
    payoffs = jnp.where(is_reward, jnp.minimum(1, mean + beta) + reach, jnp.maximum(0, mean - beta) - reach)
    return together((payoffs, estimates))


def _reach(w: jax.Array) -> jax.Array:
    """(L-k-1) w/2, what a row's error is worth: [L,S,A,B]."""
    to_go = jnp.arange(len(w), 0, -1, dtype=w.dtype).reshape(-1, *(1,) * (w.ndim - 1))  # L - k
    return (to_go - 1) * w / 2


def _truncated(transitions: jax.Array, n: jax.Array, policy: jax.Array, payoffs: jax.Array) -> Any:
    """One ceiling for all: costs respect it by themselves, as rewards respect the floor."""
    return truncated_evaluation(transitions, n, policy, payoffs, optimistic.steps_to_go(payoffs))
