"""Shared by the optimistic baselines: confidence widths, truncated evaluation and planning, the greedy choice.

Efroni, Mannor, Pirotta (2020), with H = L and n the visits BEFORE the episode:
    Lg = ln(6 |X| |A| H T / delta)
    beta_p(y|x,a) = 2 sqrt(p (1-p) Lg / max(1,n)) + (14/3) Lg / max(1,n),   beta_r(x,a) = sqrt(Lg / max(1,n))
    b = beta_r + H sum_y beta_p(y|x,a)
Multipliers of Lg are hyperparameters. The sum is over the real states y of the next layer; in the last layer there is
none: the step to x_L is known. |X| and |A| are the real ones. beta_r is recalled, not checked against the paper.

These learners evaluate pi_t with the counts before t, so their step in episode t does not depend on its trajectory.
`update` therefore takes the prepared step, counts the episode, then prepares the next step: the counts are written
before they are read, so XLA does not copy them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common.types import Trajectory
from cpdpo_jax.kernels.counting import visited_pairs, visited_rows
from cpdpo_jax.kernels.loops import layer, scan_layers_backwards, unrolled_sum, with_layer
from cpdpo_jax.kernels.optimistic import steps_to_go
from cpdpo_jax.learners.base import Info, Problem
from cpdpo_jax.learners.estimates import Estimates, empty, observe

TIE = 1e-9  # values this close, relatively if above 1, are tied; in float32 less than its rounding


class Statistics(NamedTuple):
    """Counts, means, and a sum over next states that would be expensive to recompute in every episode."""

    estimates: Estimates
    deviation: jax.Array  # [L-1,S,A,B] sum_y sqrt(p (1-p)); changes at the visited pairs only


def log_term(problem: Problem) -> Any:
    """Lg = ln(6 |X| |A| H T / delta), [B]."""
    n_layers = problem.action_mask.shape[0]
    inside = 6 * n_layers * problem.n_states * problem.n_actions * problem.episodes / problem.delta
    return jnp.log(inside) if isinstance(inside, jax.Array) else np.log(inside)


def dual_cap(problem: Problem) -> Any:
    """2H / rho, [B]: the cap on the dual, which Efroni et al. call rho."""
    return 2 * problem.action_mask.shape[0] / problem.slater_margin


def dual_rate(problem: Problem) -> Any:
    """1 / t_lambda = cap / (H sqrt(m T)), [B]."""
    n_layers, n_constraints = problem.action_mask.shape[0], problem.threshold.shape[0]
    return dual_cap(problem) / (n_layers * np.sqrt(n_constraints * problem.episodes))


def nothing_seen(problem: Problem) -> Statistics:
    """Statistics before the first episode."""
    estimates = empty(problem, as_sampled=True)
    return Statistics(
        estimates, jnp.zeros(estimates.transitions.shape[:3] + estimates.visits.shape[3:], problem.threshold.dtype)
    )


def count(statistics: Statistics, trajectory: Trajectory) -> Statistics:
    """Count one episode and recompute the deviation at the visited pairs, one per layer."""
    estimates = observe(statistics.estimates, trajectory)
    rows = visited_rows(trajectory.state, trajectory.action, estimates.transitions)
    anew = deviation_of(rows, statistics.deviation.dtype, axis=1)[:, None, None]
    visited = visited_pairs(trajectory.state, trajectory.action, *estimates.visits.shape[1:3])[:-1]
    return Statistics(estimates, jnp.where(visited, anew, statistics.deviation))


def deviation_of(counts: jax.Array, dtype: Any, axis: int) -> jax.Array:
    """sum_y sqrt(p (1-p)) = sum_y sqrt(M (n-M)) / n over the next states, which are on `axis`."""
    leading = (slice(None),) * axis
    n = unrolled_sum(counts.shape[axis], lambda y: counts[*leading, y])

    def term(y: int) -> jax.Array:
        m = counts[*leading, y]
        return jnp.sqrt(m.astype(dtype) * (n - m).astype(dtype))

    total = unrolled_sum(counts.shape[axis], term)
    return total / jnp.maximum(n, 1).astype(dtype)


def payoff_width(visits: jax.Array, log: jax.Array) -> jax.Array:
    """beta_r = sqrt(Lg / n), n >= 1; the shape of `visits`."""
    return jnp.sqrt(log / visits)


def transition_width(transition: jax.Array, visits: jax.Array, log: jax.Array) -> jax.Array:
    """beta_p = 2 sqrt(p (1-p) Lg / n) + (14/3) Lg / n, n >= 1: [L-1,S,A,S,B], [L-1,S,A,B] -> [L-1,S,A,S,B]."""
    per_visit = (log / visits)[:, :, :, None]
    return 2 * jnp.sqrt(jnp.maximum(transition * (1 - transition), 0) * per_visit) + 14 / 3 * per_visit


def transition_bonus(deviation: jax.Array, visits: jax.Array, action_mask: jax.Array, log: jax.Array) -> jax.Array:
    """H sum_y beta_p(y|x,a) over the real next states, with factors independent of y outside the sum.

    deviation [L-1,S,A,B], visits (n >= 1) and action_mask [L,S,A,B] -> [L,S,A,B], 0 in the last layer.
    """
    real = action_mask.any(axis=2)[1:].astype(visits.dtype)
    next_states = unrolled_sum(real.shape[1], lambda y: real[:, y])[:, None, None]  # number of real states
    root = jnp.sqrt(log / visits[:-1])
    total = 2 * visits.shape[0] * root * (deviation + 7 / 3 * next_states * root)
    return jnp.concatenate([jnp.abs(total), jnp.zeros_like(visits[-1:])])  # abs: a product, rounded before it is added


def truncated_plan(
    counts: jax.Array, visits: jax.Array, payoffs: jax.Array, choose: Callable[[Any, jax.Array], jax.Array]
) -> tuple[jax.Array, jax.Array]:
    """Q_h = clip(v + P_hat V_{h+1}, 0, H-h) per payoff, the policy chosen by all Q_h, V_h = sum_a pi Q_h; backwards.

    counts [L-1,S,A,S,B], visits (n >= 1) [L,S,A,B], payoffs [K,L,S,A,B], choose(h, Q_h [K,S,A,B]) -> pi [S,A,B]
    -> (policy [L,S,A,B], V(x_0) [K,B]).
    """
    n_payoffs, n_layers, n_states, n_actions = payoffs.shape[:4]
    per_visit, ceiling = 1 / visits, steps_to_go(payoffs)[0]
    policy = jnp.zeros(payoffs.shape[1:], payoffs.dtype)
    values = jnp.zeros((n_layers, n_payoffs, n_states, *payoffs.shape[4:]), payoffs.dtype)

    def chosen(k: Any, q: jax.Array, both: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        policy, values = both
        of_pairs = jnp.clip(q, 0, layer(ceiling, k))
        policy = with_layer(policy, k, choose(k, of_pairs))
        pi = layer(policy, k)
        return policy, with_layer(values, k, unrolled_sum(n_actions, lambda a: pi[:, a] * of_pairs[:, :, a]))

    def step(k: Any, both: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        arrivals, ahead = layer(counts, k), layer(both[1], k + 1)
        total = unrolled_sum(
            n_states, lambda y: arrivals[None, :, :, y].astype(payoffs.dtype) * ahead[:, y, None, None]
        )
        return chosen(k, layer(payoffs, k, axis=1) + layer(per_visit, k) * total, both)

    last = chosen(n_layers - 1, payoffs[:, -1], (policy, values))
    policy, values = scan_layers_backwards(n_layers - 1, n_states, step, last)
    return policy, values[0, :, 0]


def greedy(values: jax.Array, mask: jax.Array, axis: int, tie: float = TIE) -> jax.Array:
    """The first allowed action within `tie` of the best one, one-hot; values and mask (bool) have actions on `axis`.

    Exactly one action is chosen. XLA may compute a value twice with different rounding; if then no action is within
    `tie` of the largest, the choice is the action that was largest in the comparison. With tie = 0 it is directly the
    first of the largest.
    """
    n_actions, front = values.shape[axis], (slice(None),) * axis
    allowed = jnp.where(mask, values, -jnp.inf)
    largest, chosen = allowed[*front, 0], jnp.zeros(allowed[*front, 0].shape, jnp.int32)
    for a in range(1, n_actions):
        better = allowed[*front, a] > largest
        largest, chosen = jnp.where(better, allowed[*front, a], largest), jnp.where(better, a, chosen)
    enough = largest - tie * jnp.maximum(1, jnp.abs(largest))
    for a in reversed(range(n_actions)) if tie else ():
        chosen = jnp.where(mask[*front, a] & (allowed[*front, a] >= enough), a, chosen)
    actions = jnp.arange(n_actions, dtype=jnp.int32).reshape(-1, *(1,) * (values.ndim - axis - 1))
    return mask & (actions == jnp.expand_dims(chosen, axis))


def optimistic_payoffs(
    problem: Problem, hyper: Any, statistics: Statistics, scale: Any = 1
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """r_hat + scale b and g_hat_i - scale b, with max(1,n) and the transitions' part of b.

    -> (payoffs [1+M,L,S,A,B], visits [L,S,A,B], H sum_y beta_p [L,S,A,B])
    """
    log = log_term(problem)
    payoff_sum = statistics.estimates.payoff_sum
    visits = jnp.maximum(statistics.estimates.visits, 1).astype(payoff_sum.dtype)
    of_transitions = transition_bonus(
        statistics.deviation, visits, problem.action_mask, hyper.transition_confidence * log
    )
    bonus = scale * (payoff_width(visits, hyper.payoff_confidence * log) + of_transitions)
    mean = payoff_sum / visits
    return jnp.concatenate([mean[:1] + bonus, mean[1:] - bonus]), visits, of_transitions


def bounded_payoffs(
    problem: Problem, hyper: Any, statistics: Statistics, scale: Any = 1
) -> tuple[jax.Array, jax.Array]:
    """r_hat + scale b and g_hat_i - scale b with max(1,n); at unseen pairs, values that are truncated to L-k and 0.

    -> (payoffs [1+M,L,S,A,B], visits [L,S,A,B])
    """
    payoffs, visits, _ = optimistic_payoffs(problem, hyper, statistics, scale)
    return bound_if_unseen(payoffs, statistics.estimates.visits), visits


def bound_if_unseen(payoffs: jax.Array, visits: jax.Array) -> jax.Array:
    """Payoffs [1+M,L,S,A,B], with a reward large enough to be truncated and cost 0 where visits [L,S,A,B] is 0."""
    largest = jnp.full_like(payoffs[:1], jnp.inf)
    return jnp.where(visits > 0, payoffs, jnp.concatenate([largest, jnp.zeros_like(payoffs[1:])]))


def lagrangian(action_values: jax.Array, multipliers: jax.Array) -> jax.Array:
    """Q = Q^r - sum_i lambda_i Q^{g_i}: [1+M,...,B], [M,B] -> [...,B]."""
    total = action_values[0]
    for i in range(len(multipliers)):
        total = total - multipliers[i] * action_values[1 + i]
    return total


def info(multipliers: jax.Array) -> Info:
    """The multipliers lambda_t of the episode played, before its dual step; no epochs."""
    return Info(multipliers, jnp.zeros(multipliers.shape[1:], jnp.int32))
