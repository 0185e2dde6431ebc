"""Regularised primal-dual (Mueller, Alatur, Cevher, Ramponi, He 2024, the algorithm with optimistic exploration).

What it does: OptPrimalDual with an entropy reward tau psi, psi = -ln pi_t, and a quadratic penalty tau on the
multipliers. The regularised saddle point attracts the iterates, which stop circling: the last policy is good, not
only the average.
Cost per episode: one truncated value function per payoff and one for the entropy, O((2+m) L S^2 A).
Guarantee: strong regret and strong violation of order T^0.93, with high probability.
When to use it: as the rival of CPD-PO among the cheap methods, where every episode counts. Needs rho and T.

    Q = Q^r - sum_i lambda_i Q^{g_i} + tau Q^psi,   pi_{t+1}(a|x) prop. to pi_t(a|x) exp(eta Q(x,a))
    lambda_{t+1} = clip((1 - eta tau) lambda_t + eta (V(g~) - alpha), 0, cap)
    Q^psi_h = min((H-h) ln|A|, psi + ln|A| H sum_y beta_p + P_hat V^psi_{h+1})
    eta = T^(-5/7), tau = T^(-1/7)
pi_1 is uniform, lambda_1 = 0; everything is evaluated with the counts from before episode t (see `optimistic`).

Deviations: recalled, not checked against the paper: the constants 1 before eta and tau, the ceiling of Q^psi and the
factor ln|A| of its bonus, the width of rewards and costs. As recalled, the ceiling is below psi where
pi_t(a|x) < |A|^-(H-h): such actions are not pulled back as entropy would; `entropy_ceiling` raises it. eta is two
hyperparameters, `policy_rate` and `dual_rate`. cap = 2H/rho; no transition bonus for the known step to x_L. A pair
never seen has the bounds: Q^r = H-h, Q^{g_i} = 0 and Q^psi at its ceiling, whatever the multipliers of the widths.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from optax.projections import projection_box

from cpdpo_jax.common.types import Array, Trajectory
from cpdpo_jax.kernels import recentred, softmax_policy, truncated_evaluation
from cpdpo_jax.kernels.loops import unrolled_sum
from cpdpo_jax.kernels.optimistic import steps_to_go
from cpdpo_jax.learners import base, optimistic, optprimaldual
from cpdpo_jax.learners.base import Info, Learner, Problem
from cpdpo_jax.learners.optprimaldual import State


class Hyperparameters(NamedTuple):
    """All [B], traced: sweeping them does not recompile."""

    policy_rate: Array  # eta of the policy
    dual_rate: Array  # eta of the multipliers
    regularisation: Array  # tau
    entropy_ceiling: Array  # multiplies (H-h) ln|A|, where Q^psi is cut
    dual_cap: Array  # the largest multiplier, 2H/rho
    transition_confidence: Array  # multiplies the logarithm in beta_p
    payoff_confidence: Array  # multiplies the logarithm in beta_r


def hyperparameters(problem: Problem, preset: str = "tuned") -> Hyperparameters:
    """The paper's constants ("theory"), or these rescaled by `experiments/tuning` ("tuned")."""
    ones = np.ones_like(problem.episodes)
    theory = Hyperparameters(
        policy_rate=problem.episodes ** (-5 / 7),
        dual_rate=problem.episodes ** (-5 / 7),
        regularisation=problem.episodes ** (-1 / 7),
        entropy_ceiling=ones,
        dual_cap=optimistic.dual_cap(problem),
        transition_confidence=ones,
        payoff_confidence=ones,
    )
    if preset == "theory":
        return theory
    return theory._replace(
        policy_rate=60 * theory.policy_rate,
        dual_rate=13 * theory.dual_rate,
        regularisation=0.07 * theory.regularisation,
        dual_cap=0.54 * theory.dual_cap,
        transition_confidence=5e-7 * ones,
        payoff_confidence=4.5e-5 * ones,
    )


def surprise(log_weights: jax.Array, action_mask: jax.Array) -> jax.Array:
    """psi = -ln pi, exact where pi underflows; the largest allowed weight must be 0, psi is 0 at padding. [L,S,A,B]."""
    weights = jnp.where(action_mask, jnp.exp(log_weights), 0)
    total = unrolled_sum(weights.shape[2], lambda a: weights[:, :, a])[:, :, None]
    return jnp.where(action_mask, jnp.log(jnp.maximum(total, 1)) - log_weights, 0)  # total >= 1 at a real state


def update(
    problem: Problem, hyper: Hyperparameters, state: State, policy: jax.Array, trajectory: Trajectory
) -> tuple[State, Info]:
    """Compute pi_{t+1} and lambda_{t+1}, count episode t, then evaluate pi_{t+1}."""
    ascent = hyper.policy_rate * state.action_values
    log_weights = recentred(state.log_weights + ascent, problem.action_mask)
    kept = state.multipliers - hyper.dual_rate * hyper.regularisation * state.multipliers
    descent = hyper.dual_rate * (state.cost_values - problem.threshold)
    multipliers = projection_box(kept + descent, 0, hyper.dual_cap)

    statistics = optimistic.count(state.statistics, trajectory)
    payoffs, visits, of_transitions = optimistic.optimistic_payoffs(problem, hyper, statistics)
    to_go = steps_to_go(payoffs)
    log_actions = jnp.log(problem.n_actions)
    psi = surprise(log_weights, problem.action_mask) + log_actions * of_transitions
    payoffs = optimistic.bound_if_unseen(payoffs, statistics.estimates.visits)
    psi = jnp.where(statistics.estimates.visits > 0, psi, jnp.inf)
    entropy_ceiling = hyper.entropy_ceiling * log_actions * to_go[:1]
    action_values, values = truncated_evaluation(
        statistics.estimates.transitions,
        visits,
        softmax_policy(log_weights, problem.action_mask),
        jnp.concatenate([payoffs, psi[None]]),
        jnp.concatenate([jnp.broadcast_to(to_go, (*to_go.shape[:2], *log_actions.shape)), entropy_ceiling]),
    )
    plain = optimistic.lagrangian(action_values[:-1], multipliers)
    after = State(
        statistics=statistics,
        log_weights=log_weights,
        multipliers=multipliers,
        action_values=plain + hyper.regularisation * action_values[-1],
        cost_values=values[1:-1],
    )
    return after, optimistic.info(state.multipliers)


LEARNER = base.register(
    Learner(
        name="regularized_primal_dual",
        hyperparameters=hyperparameters,
        init=optprimaldual.init,
        policy=optprimaldual.policy,
        update=update,
        needs_slater=True,
    )
)
