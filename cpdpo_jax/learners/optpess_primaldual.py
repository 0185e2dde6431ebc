"""OptPess-PrimalDual (Liu, Zhou, Kalathil, Kumar, Tian 2021): greedy optimistic plans against tightened constraints.

What it does: plays the deterministic policy of a greedy backward pass for the optimistic reward minus the
weighted optimistic costs, then increases the multipliers by the optimistic cost plus a margin that decreases with t.
Cost per episode: one greedy backward pass, O((1+m) L S^2 A), as `optprimaldual`.
Guarantee: regret of order H^3 sqrt(S^3 A T) / rho and weak violation bounded in T, with high probability. Nothing on
the strong violation: where the optimum mixes actions, deterministic policies remain infeasible or too conservative.
When to use it: where only the sum of the signed violations matters. Needs rho (for the rate), and T in the logarithm.

    weight_i = dual_rate lambda_{t,i} / sqrt(t),   dual_rate = 1 / (rho H)
    Q^r = min(L-k, r_hat + b + P_hat V^r),   Q^{g_i} = max(0, g_hat_i - b + P_hat V^{g_i});   never seen: L-k and 0
    pi_t(x) = the first a within 1e-9 of the largest Q^r - sum_i weight_i Q^{g_i},   V = Q at that action
    lambda_{t+1} = [lambda_t + V^g(x_0) + eps_t - alpha]_+
    eps_t = tightening (l + 1) / sqrt(t l),   l = ln(16 |X|^2 |A| H t / delta),   tightening = 5 H^2 sqrt(|X|^3 |A|)
with the counts from before episode t and the bonus b of `optimistic`; lambda_1 = 0. The first policy is the first
allowed action everywhere: before any visit all are tied.

Deviations: reward and costs are truncated separately and the choice is greedy on their combination; the paper plans for
one payoff without truncation; widths of `optimistic` for theirs; rho in place of their known margin of a safe
policy; the constants of eps_t and of the rate are recalled, not checked against the paper; several constraints have a
multiplier each. For "tuned" see `hyperparameters`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from optax.projections import projection_non_negative

from cpdpo_jax.common.types import Array, Trajectory
from cpdpo_jax.kernels.loops import layer
from cpdpo_jax.learners import base, optimistic
from cpdpo_jax.learners.base import Info, Learner, Problem
from cpdpo_jax.learners.optimistic import Statistics, bounded_payoffs, count, greedy, nothing_seen, truncated_plan


class Hyperparameters(NamedTuple):
    """All [B], traced: sweeping them does not recompile."""

    dual_rate: Array  # weight = dual_rate lambda / sqrt(t)
    tightening: Array  # the factor of eps_t
    transition_confidence: Array  # multiplies the logarithm in beta_p
    payoff_confidence: Array  # multiplies the logarithm in beta_r


class State(NamedTuple):
    """State before episode t: counts, policy, and the values for its dual step."""

    statistics: Statistics
    policy: jax.Array  # [L,S,A,B] pi_t
    multipliers: jax.Array  # [M,B] lambda_t
    cost_values: jax.Array  # [M,B] V^g(x_0) of pi_t
    episode: jax.Array  # [B] int32, t


def hyperparameters(problem: Problem, preset: str = "tuned") -> Hyperparameters:
    """The paper's constants ("theory"), or these rescaled by `experiments/tuning` ("tuned").

    The paper's tightening exceeds H for every feasible T, and the multipliers then only grow: "tuned" uses a
    separate value.
    """
    n_layers = problem.action_mask.shape[0]
    ones = np.ones_like(problem.episodes)
    theory = Hyperparameters(
        dual_rate=1 / (problem.slater_margin * n_layers),
        tightening=5 * n_layers**2 * np.sqrt(problem.n_states**3 * problem.n_actions),
        transition_confidence=ones,
        payoff_confidence=ones,
    )
    if preset == "theory":
        return theory
    return theory._replace(
        dual_rate=0.13 * theory.dual_rate,
        tightening=4.3 * ones,
        transition_confidence=1.3e-5 * ones,
        payoff_confidence=0.12 * ones,
    )


def plan(
    problem: Problem, hyper: Hyperparameters, statistics: Statistics, weights: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The greedy policy [L,S,A,B] for weights [M,B], and its optimistic values of reward and costs at x_0 [1+M,B]."""
    payoffs, visits = bounded_payoffs(problem, hyper, statistics)

    def choose(k: Any, q: jax.Array) -> jax.Array:
        return greedy(optimistic.lagrangian(q, weights), layer(problem.action_mask, k), 1).astype(q.dtype)

    return truncated_plan(statistics.estimates.transitions, visits, payoffs, choose)


def margin(problem: Problem, hyper: Hyperparameters, time: jax.Array) -> jax.Array:
    """eps_t = tightening (l + 1) / sqrt(t l), [B]."""
    n_layers = problem.action_mask.shape[0]
    log = jnp.log(16 * problem.n_states**2 * problem.n_actions * n_layers * time / problem.delta)
    return hyper.tightening * jnp.sqrt((log + 1) ** 2 / (time * log))  # no quotient by a root: machines/README.md


def init(problem: Problem, hyper: Hyperparameters) -> State:
    """Before any visit all actions are tied and cost nothing; lambda_1 = 0."""
    dtype = problem.threshold.dtype
    return State(
        statistics=nothing_seen(problem),
        policy=greedy(jnp.zeros(problem.action_mask.shape, dtype), problem.action_mask, 2).astype(dtype),
        multipliers=jnp.zeros_like(problem.threshold),
        cost_values=jnp.zeros_like(problem.threshold),
        episode=jnp.ones(problem.threshold.shape[1:], jnp.int32),
    )


def update(
    problem: Problem, hyper: Hyperparameters, state: State, policy: jax.Array, trajectory: Trajectory
) -> tuple[State, Info]:
    """Compute lambda_{t+1}, count episode t, then plan pi_{t+1}."""
    excess = state.cost_values + margin(problem, hyper, state.episode.astype(policy.dtype)) - problem.threshold
    multipliers = projection_non_negative(state.multipliers + excess)

    statistics = count(state.statistics, trajectory)
    following = state.episode + 1
    weights = hyper.dual_rate * multipliers * jnp.sqrt(1 / following.astype(policy.dtype))
    policy, values = plan(problem, hyper, statistics, weights)
    return State(statistics, policy, multipliers, values[1:], following), optimistic.info(state.multipliers)


LEARNER = base.register(
    Learner(
        name="optpess_primaldual",
        hyperparameters=hyperparameters,
        init=init,
        policy=lambda problem, hyper, state: state.policy,
        update=update,
        needs_slater=True,
    )
)
