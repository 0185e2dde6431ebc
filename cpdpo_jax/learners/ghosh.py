"""The learner of Ghosh, Zhou, Shroff (2024): hard violation in episodic CMDPs without Slater's condition.

What it does: in every episode it looks for the least multiplier Y whose softmax policy satisfies the constraint in the
optimistic empirical model, and plays that policy. Y is recomputed each time; only the counts are stored.
Cost per episode: 26 backward passes over reward and cost (one at Y = 0, 24 of the bisection, one for the policy), 2 if
Y = 0 is feasible in all lanes; each O((1+m) L S^2 A), that of `optprimaldual`.
Guarantee: with their bonus and a scan over Y, strong regret and strong violation of order sqrt(S^2 A H^3 T), with high
probability, without a Slater condition. For one constraint only.
When to use it: one constraint, no known rho, where every episode's violation counts. Needs T.

    pass(Y), backwards over the layers k, with the counts from before episode t:
        Q^r = min(L-k, r_hat + b + P_hat V^r),   Q^g = max(0, g_hat - b + P_hat V^g);   never seen: Q^r = L-k, Q^g = 0
        pi(a|x) prop. to exp(c (Q^r - Y Q^g)),   V^r = sum_a pi Q^r,   V^g = sum_a pi Q^g
    Y_t = 0 if pass(0) has V^g(x_0) <= alpha, else the feasible end of 24 bisections of [0, cap] (cap if none is)
    c = ln|A| sqrt(T) / (4H),   cap = sqrt(T)
The bonus b = beta_r + H sum_y beta_p(y) is that of `optimistic`.

Deviations: their bonus differs, and their payoffs are known; bisection in place of the scan over a grid of Y
(V^g need not decrease in Y because of the truncation, so the crossing found need not be the first). Several constraints
are rejected: with one Y for the sum of the costs the regret is linear as soon as one of them is slack.
For "tuned" see `hyperparameters`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common.types import Array, Trajectory
from cpdpo_jax.kernels import recentred, softmax_policy, uniform_policy
from cpdpo_jax.kernels.loops import layer, unrolled_sum
from cpdpo_jax.learners import base, optimistic
from cpdpo_jax.learners.base import Info, Learner, Problem
from cpdpo_jax.learners.bisection import bisect
from cpdpo_jax.learners.optimistic import Statistics, bounded_payoffs, count, nothing_seen, truncated_plan


class Hyperparameters(NamedTuple):
    """All [B], traced: sweeping them does not recompile."""

    policy_rate: Array  # c, the inverse temperature of the softmax
    dual_cap: Array  # the largest Y
    transition_confidence: Array  # multiplies the logarithm in beta_p
    payoff_confidence: Array  # multiplies the logarithm in beta_r


class State(NamedTuple):
    """State before episode t: counts, and the policy computed from them."""

    statistics: Statistics
    policy: jax.Array  # [L,S,A,B] pi_t
    multipliers: jax.Array  # [M,B] Y_t


def hyperparameters(problem: Problem, preset: str = "tuned") -> Hyperparameters:
    """The paper's constants ("theory"), or these times the factors of "tuned".

    These come from a small manual search on two random CMDPs (5 layers of 5 states, 3 actions, T = 10^4), not from
    the search with equal budgets that chose those of the other learners.
    """
    n_constraints = problem.threshold.shape[0]
    if n_constraints > 1:
        raise ValueError(
            f"the learner 'ghosh' handles one constraint, but the CMDP has {n_constraints}; keep one of them, or "
            "choose a learner with a multiplier for each, such as 'uopt_rpgpd' or 'optprimaldual'."
        )
    ones = np.ones_like(problem.episodes)
    theory = Hyperparameters(
        policy_rate=np.log(problem.n_actions) * np.sqrt(problem.episodes) / (4 * problem.action_mask.shape[0]),
        dual_cap=np.sqrt(problem.episodes),
        transition_confidence=ones,
        payoff_confidence=ones,
    )
    if preset == "theory":
        return theory
    return theory._replace(
        policy_rate=30 * theory.policy_rate, transition_confidence=1e-6 * ones, payoff_confidence=1e-2 * ones
    )


def choose_policy(problem: Problem, hyper: Hyperparameters, statistics: Statistics) -> tuple[jax.Array, jax.Array]:
    """(pi_t [L,S,A,B], Y_t [B]) of the counts before episode t."""
    payoffs, visits = bounded_payoffs(problem, hyper, statistics)

    def softmax_pass(multiplier: jax.Array) -> tuple[jax.Array, jax.Array]:
        def softmax(k: Any, q: jax.Array) -> jax.Array:
            mask = layer(problem.action_mask, k)[None]
            weights = q[0] - multiplier * unrolled_sum(len(q) - 1, lambda i: q[1 + i])
            return softmax_policy(hyper.policy_rate * recentred(weights[None], mask), mask)[0]

        return truncated_plan(statistics.estimates.transitions, visits, payoffs, softmax)

    def cost(multiplier: jax.Array) -> jax.Array:
        return softmax_pass(multiplier)[1][1:]

    multiplier, _ = bisect(cost, problem.threshold, hyper.dual_cap, try_cap=False)
    return softmax_pass(multiplier)[0], multiplier


def init(problem: Problem, hyper: Hyperparameters) -> State:
    """Before any visit all actions are alike and cost nothing: pi_1 is uniform, Y_1 = 0."""
    return State(
        statistics=nothing_seen(problem),
        policy=uniform_policy(problem.action_mask, problem.threshold.dtype),
        multipliers=jnp.zeros_like(problem.threshold),
    )


def update(
    problem: Problem, hyper: Hyperparameters, state: State, policy: jax.Array, trajectory: Trajectory
) -> tuple[State, Info]:
    """Count episode t, then compute Y_{t+1} and its policy."""
    statistics = count(state.statistics, trajectory)
    policy, multiplier = choose_policy(problem, hyper, statistics)
    multipliers = jnp.broadcast_to(multiplier, problem.threshold.shape)
    return State(statistics, policy, multipliers), optimistic.info(state.multipliers)


LEARNER = base.register(
    Learner(
        name="ghosh",
        hyperparameters=hyperparameters,
        init=init,
        policy=lambda problem, hyper, state: state.policy,
        update=update,
        most_constraints=1,
    )
)
