"""OptPrimalDual-CMDP (Efroni, Mannor, Pirotta 2020, the primal-dual algorithm with incremental updates).

What it does: evaluates the policy it plays optimistically under the empirical model, then takes one exponentiated
step of the policy on Q^r - sum_i lambda_i Q^{g_i} and one projected gradient step of the multipliers. No planning, no
linear program.
Cost per episode: one truncated value function per payoff, O((1+m) L S^2 A); the cheapest of the learners here.
Guarantee: weak regret and weak violation of order sqrt(T), with high probability. The iterates circle around the
saddle point, so violations and savings cancel; there is no bound on the strong metrics.
When to use it: large instances, and where only averages over episodes matter. Needs rho (for the cap) and T.

    pi_{t+1}(a|x) prop. to pi_t(a|x) exp(t_K Q(x,a)),           t_K = sqrt(2 ln|A| / (H^2 (1 + m cap)^2 T))
    lambda_{t+1} = clip(lambda_t + (V(g~) - alpha) / t_lambda, 0, cap),   t_lambda = H sqrt(m T) / cap
pi_1 is uniform, lambda_1 = 0; Q and V are those of pi_t with the counts from before episode t (see `optimistic`).

Deviations: rewards are maximised and costs bounded from above; cap, which the paper calls rho, is 2H / rho with the
Slater margin rho; the width of rewards and costs is recalled, not checked; no transition bonus for the known step to
x_L; a pair never seen has the bounds themselves, Q^r = H-h and Q^{g_i} = 0 (the theory's widths imply this; with
multipliers below 1 its row of zeros with a small bonus would be worthless instead of optimistic). For "tuned" see
`hyperparameters`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from optax.projections import projection_box

from cpdpo_jax.common.types import Array, Trajectory
from cpdpo_jax.kernels import recentred, softmax_policy, truncated_evaluation
from cpdpo_jax.kernels.optimistic import steps_to_go
from cpdpo_jax.learners import base, optimistic
from cpdpo_jax.learners.base import Info, Learner, Problem
from cpdpo_jax.learners.optimistic import Statistics, count, nothing_seen


class Hyperparameters(NamedTuple):
    """All [B], traced: sweeping them does not recompile."""

    policy_rate: Array  # t_K
    dual_rate: Array  # 1 / t_lambda
    dual_cap: Array  # the largest multiplier, 2H/rho
    transition_confidence: Array  # multiplies the logarithm in beta_p
    payoff_confidence: Array  # multiplies the logarithm in beta_r
    bonus_scale: Array  # multiplies b = beta_r + H sum_y beta_p


class State(NamedTuple):
    """State before episode t, and the prepared step that follows it."""

    statistics: Statistics
    log_weights: jax.Array  # [L,S,A,B] ln pi_t + a constant per state; the maximum over allowed actions is 0
    multipliers: jax.Array  # [M,B] lambda_t
    action_values: jax.Array  # [L,S,A,B] Q of pi_t and lambda_t
    cost_values: jax.Array  # [M,B] V(g~) of pi_t


def hyperparameters(problem: Problem, preset: str = "tuned") -> Hyperparameters:
    """The paper's constants ("theory"), or these rescaled by `experiments/tuning` ("tuned")."""
    n_layers, n_constraints = problem.action_mask.shape[0], problem.threshold.shape[0]
    ones = np.ones_like(problem.episodes)
    cap = optimistic.dual_cap(problem)
    range_of_q = n_layers * (1 + n_constraints * cap)
    theory = Hyperparameters(
        policy_rate=np.sqrt(2 * np.log(problem.n_actions) / problem.episodes) / range_of_q,
        dual_rate=optimistic.dual_rate(problem),
        dual_cap=cap,
        transition_confidence=ones,
        payoff_confidence=ones,
        bonus_scale=ones,
    )
    if preset == "theory":
        return theory
    return theory._replace(
        policy_rate=110 * theory.policy_rate,
        dual_rate=12 * theory.dual_rate,
        dual_cap=0.26 * theory.dual_cap,
        transition_confidence=6e-8 * ones,
        payoff_confidence=1.5e-4 * ones,
    )


def init(problem: Problem, hyper: Hyperparameters) -> State:
    """pi_1 uniform, lambda_1 = 0. At first all actions of a state have the same Q (0 suffices) and V(g~) = 0."""
    zero = jnp.zeros(problem.action_mask.shape, problem.threshold.dtype)
    no_multipliers = jnp.zeros_like(problem.threshold)
    return State(nothing_seen(problem), zero, no_multipliers, action_values=zero, cost_values=no_multipliers)


def policy(problem: Problem, hyper: Hyperparameters, state: State) -> jax.Array:
    """pi_t, [L,S,A,B]."""
    return softmax_policy(state.log_weights, problem.action_mask)


def update(
    problem: Problem, hyper: Hyperparameters, state: State, policy: jax.Array, trajectory: Trajectory
) -> tuple[State, Info]:
    """Compute pi_{t+1} and lambda_{t+1}, count episode t, then evaluate pi_{t+1}."""
    ascent = hyper.policy_rate * state.action_values
    log_weights = recentred(state.log_weights + ascent, problem.action_mask)
    descent = hyper.dual_rate * (state.cost_values - problem.threshold)
    multipliers = projection_box(state.multipliers + descent, 0, hyper.dual_cap)

    statistics = count(state.statistics, trajectory)
    payoffs, visits = optimistic.bounded_payoffs(problem, hyper, statistics, hyper.bonus_scale)
    action_values, values = truncated_evaluation(
        statistics.estimates.transitions,
        visits,
        softmax_policy(log_weights, problem.action_mask),
        payoffs,
        steps_to_go(payoffs),
    )
    after = State(
        statistics=statistics,
        log_weights=log_weights,
        multipliers=multipliers,
        action_values=optimistic.lagrangian(action_values, multipliers),
        cost_values=values[1:],
    )
    return after, optimistic.info(state.multipliers)


LEARNER = base.register(
    Learner(
        name="optprimaldual",
        hyperparameters=hyperparameters,
        init=init,
        policy=policy,
        update=update,
        needs_slater=True,
    )
)
