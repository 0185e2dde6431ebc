"""The events and inequalities of CPD-OPPO's analysis, checked in every episode of a monitored run.

With x_t = [OPT - sum_i lambda_i (V*(g_i) - alpha_i)] - [V^r_t - sum_i lambda_i (V^{g_i}_t - alpha_i)], the error
e_t = (V^r_t - V(r)) + kappa sum_i (V(g_i) - V^{g_i}_t) and v_t = sum_i [V(g_i) - alpha_i]^+, where V^r_t and V^{g_i}_t
are the learner's optimistic values, V is exact and V* is that of the optimal policy pi*:
    reward, cost   |r_hat - r| <= beta, |g_hat_i - g_i| <= beta at every pair          (probability 1 - delta together)
    transition     the L1 distance of P_hat(.|x,a) and P(.|x,a) is at most w at every pair
    improvement    (a)  x_t <= sum_k E_{pi*}[<pi* - pi_t, Q_t>(x_k)]
    error          (b)  e_t >= 0
    exchange       (c)  OPT - V(r) + kappa v_t <= x_t + e_t
    regret         (d)  [OPT - V(r)]^+ <= x_t + e_t                                      if kappa > L/rho
    violation      (d)  v_t <= (x_t + e_t) / (kappa - L/rho)                             if kappa > L/rho
The inequalities are checked up to rounding, `TOLERANCE` times the size of what is compared. Summed over the episodes:
x_t, against the bound of exponential weights, and e_t.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.learners.base import Analysis, Problem, Watched
from cpdpo_jax.learners.cpdpo_analysis import ROUNDING, TOLERANCE, least
from cpdpo_jax.learners.estimates import empirical_transition

EVENTS = ("reward", "cost", "transition", "improvement", "error", "exchange", "regret", "violation")

Evaluate = Callable[..., Any]  # (problem, hyper, estimates, policy) -> widths, action values and values


def analysis(evaluate: Evaluate) -> Analysis:
    """The analysis of a learner that keeps CPD-OPPO's state; `evaluate` is the learner's own function."""
    return Analysis(EVENTS, ("x", "e"), partial(observe, evaluate), bounds, order_terms)


class Terms(NamedTuple):
    """The quantities of one episode; `slack` are those of the first five events and of `exchange`."""

    evaluation: Any  # what `evaluate` returned
    x: jax.Array  # [B] x_t
    e: jax.Array  # [B] e_t
    v: jax.Array  # [B] v_t
    size: jax.Array  # [B] rounding that is allowed for
    slack: list[jax.Array]  # [B] each


def terms(evaluate: Evaluate, watched: Watched, cap: jax.Array) -> Terms:
    """x_t, e_t and v_t, and the slack of the events `reward`, ..., `exchange`, with kappa = cap [B]."""
    problem, policy, counts = watched.problem, watched.policy, watched.after.estimates
    n_layers, allowed = policy.shape[0], problem.action_mask
    optimistic = evaluate(problem, watched.hyper, counts, policy)
    visits = jnp.maximum(counts.visits, 1).astype(policy.dtype)

    error = jnp.abs(counts.payoff_sum / visits - watched.payoff)
    within = jnp.where(allowed, optimistic.payoff_width - error, jnp.inf) + ROUNDING
    unseen = counts.visits[:-1] == 0
    distance = jnp.where(unseen, 0, jnp.abs(empirical_transition(counts) - watched.transition).sum(axis=3))
    rows = jnp.where(allowed[:-1], optimistic.transition_width[:-1] - distance, jnp.inf) + ROUNDING

    multipliers, values = watched.info.multipliers, optimistic.values
    best = watched.optimum - (multipliers * (watched.optimal_cost - problem.threshold)).sum(axis=0)
    x = best - (values[0] - (multipliers * (values[1:] - problem.threshold)).sum(axis=0))
    true_reward, true_cost = watched.optimum - watched.gaps[0], watched.gaps[1:] + problem.threshold
    e = (values[0] - true_reward) + cap * (true_cost - values[1:]).sum(axis=0)
    v = jnp.maximum(watched.gaps[1:], 0).sum(axis=0)
    q = optimistic.action_values[0] - (multipliers[:, None, None, None] * optimistic.action_values[1:]).sum(axis=0)
    gain = (watched.optimal_reach * ((watched.optimal_policy - policy) * q).sum(axis=2)).sum(axis=(0, 1))

    size = TOLERANCE * n_layers * (1 + cap * len(multipliers))  # of the values compared
    slack = [
        least(within[0]),
        least(within[1:]),
        least(rows, policy.shape[3]),
        gain - x + size,
        e + size,
        x + e - watched.gaps[0] - cap * v + size,
    ]
    return Terms(optimistic, x, e, v, size, slack)


def observe(evaluate: Evaluate, watched: Watched) -> tuple[jax.Array, jax.Array]:
    """The slack of every event, [8,B], and x_t and e_t, [2,B]."""
    cap = watched.hyper.dual_cap
    parts = terms(evaluate, watched, cap)
    bound = watched.policy.shape[0] / watched.slater_margin  # of every optimal multiplier
    applies = cap > bound
    allowed = parts.x + parts.e + parts.size
    regret = jnp.where(applies, allowed - jnp.maximum(watched.gaps[0], 0), jnp.inf)
    violation = jnp.where(applies, allowed - (cap - bound) * parts.v, jnp.inf)
    return jnp.stack([*parts.slack, regret, violation]), jnp.stack([parts.x, parts.e])


def bounds(problem: Problem, hyper: Any, n_constraints: int, episodes: float) -> np.ndarray:
    """sum x_t <= L (ln|A| / eta + eta R^2 t / 8), R = L (1 + kappa m), for a fixed rate and cap; none for e: [2,B]."""
    n_layers = problem.action_mask.shape[0]
    span = n_layers * (1 + hyper.dual_cap * n_constraints)
    bound = n_layers * (np.log(problem.n_actions) / hyper.policy_rate + hyper.policy_rate * span**2 * episodes / 8)
    fixed = (hyper.anytime == 0) & (hyper.adaptive_rate == 0)
    return np.stack([np.where(fixed, bound, np.nan), np.full_like(bound, np.nan)])


def order_terms(problem: Problem, n_constraints: int, multiplier_norm: Any) -> tuple[Any, Any]:
    """m L^2 |X| sqrt(|A| T) / rho (strong regret) and m L^2 |X| sqrt(|A| T) (violation); logarithms dropped."""
    n_layers = problem.action_mask.shape[0]
    violation = n_constraints * n_layers**2 * problem.n_states * np.sqrt(problem.n_actions * problem.episodes)
    return violation / problem.slater_margin, violation
