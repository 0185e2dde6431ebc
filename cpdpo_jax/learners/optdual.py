"""OptDual-CMDP (Efroni, Mannor, Pirotta 2020, the dual algorithm).

What it does: plays the best policy for the Lagrangian payoff r~ - sum_i lambda_i g~_i in the best model of the
confidence set (extended value iteration), then takes one projected gradient step of the multipliers.
Cost per episode: one optimistic plan, O(L S^3 A), and one value function per constraint, O(m L S^2 A).
Guarantee: weak regret and weak violation of order sqrt(T), with high probability. Every policy played is
deterministic and so usually either infeasible or too conservative; only the average is near the optimum.
When to use it: where only averages over episodes matter and planning is cheap. Needs rho (for the rate) and T.

    r~ = clip(r_hat + beta_r, 0, 1), g~_i = clip(g_hat_i - beta_r, 0, 1), set = {P : |P - P_hat| <= beta_p}
    pi_t, P_t = argmax over pi and P in the set of V^{pi,P}(r~ - sum_i lambda_{t,i} g~_i)
    lambda_{t+1} = [lambda_t + (V^{pi_t,P_t}(g~) - alpha) / t_lambda]_+,   t_lambda = H sqrt(m T) / cap
with the counts from before episode t (widths in `optimistic`); lambda_1 = 0. With no counts all policies are optimal:
pi_1 is uniform. Later ties go to the first action, and to the first next state.

Deviations: rewards are maximised and costs bounded from above; cap, which the paper calls rho, is 2H / rho with the
Slater margin rho and only sets the rate; r~ and g~ are clipped to [0,1]; a pair never visited has the whole simplex
of real next states, whatever the multiplier of the logarithm; the width of rewards and costs is recalled, not checked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from optax.projections import projection_non_negative

from cpdpo_jax.common.types import Array, Trajectory
from cpdpo_jax.kernels import maximising_transition, uniform_policy
from cpdpo_jax.kernels.loops import layer, scan_layers_backwards, unrolled_sum, with_layer
from cpdpo_jax.learners import base, optimistic
from cpdpo_jax.learners.base import Info, Learner, Problem
from cpdpo_jax.learners.estimates import Estimates, empty, observe


class Hyperparameters(NamedTuple):
    """All [B], traced: sweeping them does not recompile."""

    dual_rate: Array  # 1 / t_lambda
    transition_confidence: Array  # multiplies the logarithm in beta_p
    payoff_confidence: Array  # multiplies the logarithm in beta_r


class State(NamedTuple):
    """State before episode t: counts, policy, and the values for its dual step."""

    estimates: Estimates
    policy: jax.Array  # [L,S,A,B] pi_t
    multipliers: jax.Array  # [M,B] lambda_t
    cost_values: jax.Array  # [M,B] V(g~) of pi_t in the model P_t


def hyperparameters(problem: Problem, preset: str = "tuned") -> Hyperparameters:
    """The paper's constants ("theory"), or these rescaled by `experiments/tuning` ("tuned")."""
    ones = np.ones_like(problem.episodes)
    theory = Hyperparameters(
        dual_rate=optimistic.dual_rate(problem), transition_confidence=ones, payoff_confidence=ones
    )
    if preset == "theory":
        return theory
    return theory._replace(
        dual_rate=0.4 * theory.dual_rate, transition_confidence=6e-5 * ones, payoff_confidence=0.02 * ones
    )


def confidence_set(estimates: Estimates, next_state_mask: jax.Array, log: jax.Array) -> tuple[jax.Array, jax.Array]:
    """|P - P_hat| <= beta_p within [0, 1]; the whole simplex of real next states where nothing was seen.

    next_state_mask [L-1,S,B] (states of layers 1..L-1) -> (lower, upper) [L-1,S,A,S,B], 0 at padded next states.
    """
    visits = estimates.visits[:-1]
    visited, real = (visits > 0)[:, :, :, None], next_state_mask[:, None, None]
    n = jnp.maximum(visits, 1).astype(log.dtype)
    transition = estimates.transitions.astype(n.dtype) / n[:, :, :, None]
    width = optimistic.transition_width(transition, n, log)
    lower = jnp.where(visited & real, jnp.maximum(transition - width, 0), 0)
    upper = jnp.where(real, jnp.where(visited, jnp.minimum(transition + width, 1), 1), 0)
    return lower, upper


def plan(
    lower: jax.Array, upper: jax.Array, reward: jax.Array, cost: jax.Array, multipliers: jax.Array, mask: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The best policy for r - sum_i lambda_i g_i under the best transitions of the set (extended value iteration).

    lower and upper [L-1,S,A,S,B], reward and mask [L,S,A,B], cost [M,L,S,A,B], multipliers [M,B]
    -> (policy [L,S,A,B], its Lagrangian value [B] and costs [M,B], all at x_0 under those transitions).
    """
    n_layers, n_states, n_actions = mask.shape[:3]
    payoff = optimistic.lagrangian(jnp.concatenate([reward[None], cost]), multipliers)
    policy = jnp.zeros(mask.shape, payoff.dtype)
    values = jnp.zeros((n_layers, 1 + cost.shape[0], n_states, *mask.shape[3:]), payoff.dtype)  # Lagrangian's, costs

    def greedy(k: Any, of_pairs: jax.Array, both: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        policy, values = both
        policy = with_layer(policy, k, optimistic.greedy(of_pairs[0], layer(mask, k), 1, tie=0).astype(payoff.dtype))
        pi = layer(policy, k)
        return policy, with_layer(values, k, unrolled_sum(n_actions, lambda a: pi[:, a] * of_pairs[:, :, a]))

    def step(k: jax.Array, both: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        ahead = layer(both[1], k + 1)
        best = maximising_transition(layer(lower, k), layer(upper, k), ahead[0])
        to_come = unrolled_sum(n_states, lambda y: best[None, :, :, y] * ahead[:, y, None, None])
        return greedy(k, jnp.concatenate([layer(payoff, k)[None], layer(cost, k, axis=1)]) + to_come, both)

    last = greedy(n_layers - 1, jnp.concatenate([payoff[-1:], cost[:, -1]]), (policy, values))
    policy, values = scan_layers_backwards(n_layers - 1, n_states, step, last)
    return policy, values[0, 0, 0], values[0, 1:, 0]


def init(problem: Problem, hyper: Hyperparameters) -> State:
    """pi_1 uniform, lambda_1 = 0; before any visit g~ = 0 and so is its value."""
    return State(
        estimates=empty(problem, as_sampled=True),
        policy=uniform_policy(problem.action_mask, problem.threshold.dtype),
        multipliers=jnp.zeros_like(problem.threshold),
        cost_values=jnp.zeros_like(problem.threshold),
    )


def update(
    problem: Problem, hyper: Hyperparameters, state: State, policy: jax.Array, trajectory: Trajectory
) -> tuple[State, Info]:
    """Compute lambda_{t+1}, count episode t, then plan pi_{t+1}."""
    descent = hyper.dual_rate * (state.cost_values - problem.threshold)
    multipliers = projection_non_negative(state.multipliers + descent)

    estimates = observe(state.estimates, trajectory)
    log = optimistic.log_term(problem)
    visits = jnp.maximum(estimates.visits, 1).astype(policy.dtype)
    mean, width = estimates.payoff_sum / visits, optimistic.payoff_width(visits, hyper.payoff_confidence * log)
    real = problem.action_mask.any(axis=2)
    lower, upper = confidence_set(estimates, real[1:], hyper.transition_confidence * log)
    policy, _, cost_values = plan(
        lower,
        upper,
        jnp.clip(mean[0] + width, 0, 1),
        jnp.clip(mean[1:] - width, 0, 1),
        multipliers,
        problem.action_mask,
    )
    return State(estimates, policy, multipliers, cost_values), optimistic.info(state.multipliers)


LEARNER = base.register(
    Learner(
        name="optdual",
        hyperparameters=hyperparameters,
        init=init,
        policy=lambda problem, hyper, state: state.policy,
        update=update,
        needs_slater=True,
    )
)
