"""Watching the analysis while it runs: which event or inequality of the proofs fails, how often, by how much.

In every episode, for a learner that keeps CPD-PO's state, six things the analysis relies on are checked:
    reward       |r_hat - r| <= phi at every pair                                   (Lemma 1, with probability 1-delta)
    cost         |g_hat_i - g_i| <= xi at every pair, every i                       (Lemma 2, 1-delta)
    transition   P is in the confidence set of the episode's epoch                  (PO-DB's set, 1-4 delta)
    occupancy    q_low <= q <= q_up at every state, up to `TOLERANCE`
    lagrangian   L(pi*, lambda_t) >= L(pi_t, lambda_t) - 4Lm/rho V(xi) - 8Lm/rho D       (Lemma `lagrangian`)
    lagrangian_cor   the same with lambda_t L/(L+1) on the right, 2Lm/rho and 4Lm/rho    (Lemma `lagrangian_cor`)
where D = sum |q(P_hat) - q(P)| over pairs and rho is the true margin, whatever the learner believes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common.types import CMDP, Array
from cpdpo_jax.exact.lp import evaluate
from cpdpo_jax.exact.optimum import Solution
from cpdpo_jax.kernels.occupancy import occupancy, occupancy_bounds_in_box
from cpdpo_jax.kernels.sums import compensated_add
from cpdpo_jax.kernels.values import policy_value
from cpdpo_jax.kernels.widths import hoeffding_width
from cpdpo_jax.learners import cpdpo, podb
from cpdpo_jax.learners.base import Learner

EVENTS = ("reward", "cost", "transition", "occupancy", "lagrangian", "lagrangian_cor")
TOLERANCE = 1e-5  # float32 rounding of the two sides of an inequality of order 1


class Truth(NamedTuple):
    """What the learner does not know and the monitor needs."""

    slater_margin: Array  # [B] the true rho
    optimum_cost: Array  # [M,B] V(g_i) of the optimal policy


class Watch(NamedTuple):
    """What was seen so far."""

    failures: jax.Array  # [6,B] int32, episodes in which the event failed
    slack: jax.Array  # [6,B] the least margin by which it held (negative: failed)
    widths: jax.Array  # [2,B] sum over all episodes of V(phi_t) and V(xi_t)
    widths_carry: jax.Array  # [2,B] what that sum lost to rounding


def truth(learner: Learner, cmdp: CMDP, solution: Solution) -> Truth:
    """What is to be known of the optimum to watch a learner, [instances]."""
    if learner is not cpdpo.LEARNER:
        raise ValueError(f"monitor = True watches CPD-PO's analysis; leave it off for learner {learner.name!r}.")
    cost = [
        evaluate(cmdp.transition[..., b], solution.policy[..., b], cmdp.cost[..., b])
        for b in range(cmdp.batch_shape[0])
    ]
    return Truth(slater_margin=np.asarray(solution.slater_margin), optimum_cost=np.stack(cost, axis=-1))


def start(n_lanes: int, dtype) -> Watch:
    """Nothing seen."""
    none = jnp.zeros((len(EVENTS), n_lanes), dtype)
    return Watch(none.astype(jnp.int32), none + jnp.inf, none[:2], none[:2])


def observe(watch: Watch, lanes: Any, truth: Truth, before: Any, after: Any, episode: Any) -> Watch:
    """Check one episode: `before` and `after` are the learner's states around its update."""
    problem, hyper, model, policy = lanes.problem, lanes.hyper, lanes.model, episode.policy
    n_layers, n_constraints = policy.shape[0], problem.threshold.shape[0]
    allowed = problem.action_mask
    visits = jnp.maximum(after.estimates.visits, 1).astype(policy.dtype)
    log_pairs = podb.log_pairs(problem)
    phi = hoeffding_width(visits, hyper.reward_confidence * log_pairs)
    xi = hoeffding_width(visits, hyper.cost_confidence * (log_pairs + np.log(n_constraints)))
    error = jnp.abs(after.estimates.payoff_sum / visits - model.payoff)
    reward = _least(jnp.where(allowed, phi - error[0], jnp.inf))
    cost = _least(jnp.where(allowed, xi - error[1:], jnp.inf))

    box, real = before.primal.box, allowed.any(axis=2)[1:]
    inside = jnp.minimum(model.transition - box.lower, box.lower + box.spread - model.transition)
    transition = _least(jnp.where(allowed[:-1, :, :, None] & real[:, None, None], inside, jnp.inf), policy.shape[3])

    true_q = occupancy(model.transition, policy)
    low, up = occupancy_bounds_in_box(policy, box)
    reach = _least(jnp.minimum(true_q - low, up - true_q)) + TOLERANCE

    estimate = after.estimates.transitions / visits[:-1, :, :, None]
    apart = jnp.abs(occupancy(estimate, policy) - true_q).sum(axis=(0, 1))  # sums over a: pi is common
    widths = policy_value(model.transition, policy, jnp.stack([phi, xi]))[:, 0, 0]
    multipliers, value = episode.info.multipliers, lanes.optimum - episode.gaps[0]
    best = lanes.optimum - (multipliers * (truth.optimum_cost - problem.threshold)).sum(axis=0)
    dual = (multipliers * episode.gaps[1:]).sum(axis=0)
    unit = n_layers * n_constraints / truth.slater_margin
    scale = TOLERANCE * (1 + jnp.abs(dual) + jnp.abs(best))
    lagrangian = best - (value - dual) + unit * (4 * widths[1] + 8 * apart) + scale
    shrunk = value - dual * n_layers / (n_layers + 1)
    lagrangian_cor = best - shrunk + unit * (2 * widths[1] + 4 * apart) + scale

    slack = jnp.stack([reward, cost, transition, reach, lagrangian, lagrangian_cor])
    total, carry = compensated_add(watch.widths, watch.widths_carry, widths)
    return Watch(
        failures=watch.failures + (slack < 0),
        slack=jnp.minimum(watch.slack, slack),
        widths=total,
        widths_carry=carry,
    )


def _least(values: jax.Array, lanes: int | None = None) -> jax.Array:
    """The smallest entry of each lane, [...,B] -> [B]; +inf where there is none (L = 1 has no transitions)."""
    if values.size == 0:
        return jnp.full(lanes, jnp.inf, values.dtype)
    return values.min(axis=tuple(range(values.ndim - 1)))


def concentration_bounds(problem: Any, n_constraints: int, episodes: float) -> tuple[Any, Any]:
    """The explicit bounds on sum_t V(phi_t) and sum_t V(xi_t) (Lemmas `confidence_conc_rew`, `_costs`), [B] each.

    4 sqrt(L|X||A| T ln(T|X||A|/delta)) + L sqrt(2 T ln(1/delta)), with m inside the first logarithm for the costs.
    """
    n_layers = problem.action_mask.shape[0]
    pairs = problem.n_states * problem.n_actions
    azuma = n_layers * np.sqrt(2 * episodes * np.log(1 / problem.delta))

    def bound(inside):
        return 4 * np.sqrt(n_layers * pairs * episodes * np.log(inside)) + azuma

    inside = problem.episodes * pairs / problem.delta
    return bound(inside), bound(inside * n_constraints)


def order_terms(problem: Any, n_constraints: int) -> tuple[Any, Any]:
    """The theorems' order terms with constant 1 and logarithms dropped: regret (Theorem 1), violation (Theorem 2)."""
    n_layers = problem.action_mask.shape[0]
    violation = n_constraints * (
        n_layers**3 * problem.n_states * np.sqrt(problem.n_actions * problem.episodes) + n_layers**5
    )
    return violation / problem.slater_margin, violation
