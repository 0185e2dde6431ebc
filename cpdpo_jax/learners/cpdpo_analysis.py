"""The events and inequalities of CPD-PO's analysis, checked in every episode of a monitored run.

    reward       |r_hat - r| <= phi at every pair                                   (Lemma 1, with probability 1-delta)
    cost         |g_hat_i - g_i| <= xi at every pair, every i                       (Lemma 2, 1-delta)
    transition   P is in the confidence set of the episode's epoch, up to `ROUNDING`    (PO-DB's set, 1-4 delta)
    occupancy    q_low <= q <= q_up at every state, up to `TOLERANCE`
    lagrangian   L(pi*, lambda_t) >= L(pi_t, lambda_t) - 4Lm/rho V(xi) - 8Lm/rho D       (Lemma `lagrangian`)
    lagrangian_cor   the same with lambda_t L/(L+1) on the right, 2Lm/rho and 4Lm/rho    (Lemma `lagrangian_cor`)
where D = sum |q(P_hat) - q(P)| over pairs and rho is the true margin, not the believed one. Summed over the
episodes: V(phi_t) and V(xi_t), against the concentration lemmas.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.kernels.occupancy import occupancy, occupancy_bounds
from cpdpo_jax.kernels.values import policy_value
from cpdpo_jax.learners.base import Analysis, Problem, Watched
from cpdpo_jax.learners.estimates import empirical_transition

EVENTS = ("reward", "cost", "transition", "occupancy", "lagrangian", "lagrangian_cor")
TOLERANCE = 1e-5  # float32 rounding of the two sides of an inequality of order 1
ROUNDING = 1e-6  # float32 rounding of a probability: P = 1 is 1 - 6e-8 as a sum

Widths = Callable[[Problem, Any, jax.Array], tuple[jax.Array, jax.Array]]  # (problem, hyper, visits) -> phi, xi


def analysis(widths: Widths, past_counts: bool) -> Analysis:
    """The analysis of a learner that keeps CPD-PO's state; `widths` is the learner's own function.

    `past_counts`: multipliers and loss come from the estimates before the episode.
    """
    sums = ("reward width", "cost width")
    return Analysis(EVENTS, sums, partial(observe, widths, past_counts), concentration_bounds, order_terms)


def observe(widths: Widths, past_counts: bool, watched: Watched) -> tuple[jax.Array, jax.Array]:
    """The slack of every event, [6,B], and V(phi_t), V(xi_t), [2,B]."""
    problem, policy = watched.problem, watched.policy
    estimates = (watched.before if past_counts else watched.after).estimates
    n_layers, n_constraints = policy.shape[0], problem.threshold.shape[0]
    allowed = problem.action_mask
    visits = jnp.maximum(estimates.visits, 1).astype(policy.dtype)
    phi, xi = widths(problem, watched.hyper, visits)
    error = jnp.abs(estimates.payoff_sum / visits - watched.payoff)
    reward = least(jnp.where(allowed, phi - error[0], jnp.inf))
    cost = least(jnp.where(allowed, xi - error[1:], jnp.inf))

    lower, upper, real = watched.before.primal.epoch.lower, watched.before.primal.epoch.upper, allowed.any(axis=2)[1:]
    inside = jnp.minimum(watched.transition - lower, upper - watched.transition) + ROUNDING
    transition = least(jnp.where(allowed[:-1, :, :, None] & real[:, None, None], inside, jnp.inf), policy.shape[3])

    true_q = occupancy(watched.transition, policy)
    low, up = occupancy_bounds(policy, lower, upper)
    reach = least(jnp.minimum(true_q - low, up - true_q)) + TOLERANCE

    estimate = occupancy(empirical_transition(estimates), policy)
    apart = jnp.abs(estimate - true_q).sum(axis=(0, 1))  # sums over a: pi is common
    values = policy_value(watched.transition, policy, jnp.stack([phi, xi]))[:, 0, 0]
    multipliers, value = watched.info.multipliers, watched.optimum - watched.gaps[0]
    best = watched.optimum - (multipliers * (watched.optimal_cost - problem.threshold)).sum(axis=0)
    dual = (multipliers * watched.gaps[1:]).sum(axis=0)
    unit = n_layers * n_constraints / watched.slater_margin
    scale = TOLERANCE * (1 + jnp.abs(dual) + jnp.abs(best))
    lagrangian = best - (value - dual) + unit * (4 * values[1] + 8 * apart) + scale
    shrunk = value - dual * n_layers / (n_layers + 1)
    lagrangian_cor = best - shrunk + unit * (2 * values[1] + 4 * apart) + scale
    return jnp.stack([reward, cost, transition, reach, lagrangian, lagrangian_cor]), values


def least(values: jax.Array, lanes: int | None = None) -> jax.Array:
    """The smallest entry of each lane, [...,B] -> [B]; +inf where there is none (L = 1 has no transitions)."""
    if values.size == 0:
        return jnp.full(lanes, jnp.inf, values.dtype)
    return values.min(axis=tuple(range(values.ndim - 1)))


def concentration_bounds(problem: Problem, hyper: Any, n_constraints: int, episodes: float) -> np.ndarray:
    """The explicit bounds on sum_t V(phi_t) and sum_t V(xi_t) (Lemmas `confidence_conc_rew`, `_costs`), [2,B].

    4 sqrt(L|X||A| T ln(T|X||A|/delta)) + L sqrt(2 T ln(1/delta)), with m inside the first logarithm for the costs.
    """
    n_layers = problem.action_mask.shape[0]
    pairs = problem.n_states * problem.n_actions
    azuma = n_layers * np.sqrt(2 * episodes * np.log(1 / problem.delta))

    def bound(inside: Any) -> Any:
        return 4 * np.sqrt(n_layers * pairs * episodes * np.log(inside)) + azuma

    inside = problem.episodes * pairs / problem.delta
    return np.stack([bound(inside), bound(inside * n_constraints)])


def order_terms(problem: Problem, n_constraints: int, multiplier_norm: Any) -> tuple[Any, Any]:
    """The theorems' order terms with constant 1 and logarithms dropped: regret (Theorem 1), violation (Theorem 2)."""
    n_layers = problem.action_mask.shape[0]
    violation = n_constraints * (
        n_layers**3 * problem.n_states * np.sqrt(problem.n_actions * problem.episodes) + n_layers**5
    )
    return violation / problem.slater_margin, violation
