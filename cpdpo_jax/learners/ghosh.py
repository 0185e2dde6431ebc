"""The learner of Ghosh, Zhou, Shroff (2024): hard violation in episodic CMDPs without Slater's condition.

What it does: in every episode it looks for the least multiplier Y whose softmax policy satisfies the constraint in the
optimistic empirical model, and plays that policy. Y is found anew each time; nothing but the counts is remembered.
Cost per episode: 26 backward passes over reward and cost (one at Y = 0, 24 of the bisection, one for the policy), each
O((1+m) L S^2 A); 26 times that of `optprimaldual`.
Guarantee: with their bonus and a scan over Y, strong regret and strong violation of order sqrt(S^2 A H^3 T), with high
probability, without a Slater condition. For one constraint only.
When to use it: one constraint, no known rho, where every episode's violation counts. Needs T.

    pass(Y), backwards over the layers k, with the counts from before episode t:
        Q^r = min(L-k, r_hat + b + P_hat V^r),   Q^g = max(0, g_hat - b + P_hat V^g);   never seen: Q^r = L-k, Q^g = 0
        pi(a|x) prop. to exp(c (Q^r - Y Q^g)),   V^r = sum_a pi Q^r,   V^g = sum_a pi Q^g
    Y_t = 0 if pass(0) has V^g(x_0) <= alpha, else the feasible end of 24 bisections of [0, cap] (cap if none is)
    c = ln|A| sqrt(T) / (4H),   cap = sqrt(T)
The bonus b = beta_r + H sum_y beta_p(y) is that of `optimistic`.

Deviations: their bonus is another one, and their payoffs are known; bisection in place of the scan over a grid of Y
(V^g need not fall in Y, because of the truncation: a crossing is found, not surely the first one). Several constraints
are refused: with one Y for the sum of the costs the regret is linear as soon as one of them is slack.
For "tuned" see `hyperparameters`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common.types import Array, Trajectory
from cpdpo_jax.kernels.loops import layer, unrolled_sum
from cpdpo_jax.learners import base, optimistic
from cpdpo_jax.learners.base import Info, Learner, Problem
from cpdpo_jax.learners.optimistic import Statistics, bounded_payoffs, count, nothing_seen, truncated_plan

BISECTIONS = 24  # Y to the precision of float32


class Hyperparameters(NamedTuple):
    """All [B], traced: sweeping them does not recompile."""

    policy_rate: Array  # c, the inverse temperature of the softmax
    dual_cap: Array  # the largest Y
    transition_confidence: Array  # multiplies the logarithm in beta_p
    payoff_confidence: Array  # multiplies the logarithm in beta_r


class State(NamedTuple):
    """Before episode t: all that is known of it, and what was made of that."""

    statistics: Statistics
    policy: jax.Array  # [L,S,A,B] pi_t
    multipliers: jax.Array  # [M,B] Y_t


def hyperparameters(problem: Problem, preset: str = "tuned") -> Hyperparameters:
    """The paper's constants ("theory"), or those times the multipliers of "tuned".

    These are a first choice, from a small search by hand on two random CMDPs (5 layers of 5 states, 3 actions,
    T = 10^4), not from the search with equal budgets that chose the other learners'.
    """
    n_constraints = problem.threshold.shape[0]
    if n_constraints > 1:
        raise ValueError(
            f"the learner 'ghosh' is made for one constraint, and the CMDP has {n_constraints}; keep one of them, or "
            "choose a learner with a multiplier for each, such as 'uopt_rpgpd' or 'optprimaldual'."
        )
    one = np.ones_like(problem.episodes)
    theory = Hyperparameters(
        policy_rate=np.log(problem.n_actions) * np.sqrt(problem.episodes) / (4 * problem.action_mask.shape[0]),
        dual_cap=np.sqrt(problem.episodes),
        transition_confidence=one,
        payoff_confidence=one,
    )
    if preset == "theory":
        return theory
    return theory._replace(
        policy_rate=30 * theory.policy_rate, transition_confidence=1e-6 * one, payoff_confidence=1e-2 * one
    )


def choose_policy(problem: Problem, hyper: Hyperparameters, statistics: Statistics) -> tuple[jax.Array, jax.Array]:
    """(pi_t [L,S,A,B], Y_t [B]) of the counts before episode t."""
    payoffs, visits = bounded_payoffs(problem, hyper, statistics)

    def softmax_pass(multiplier: jax.Array) -> tuple[jax.Array, jax.Array]:
        def softmax(k: Any, q: jax.Array) -> jax.Array:
            mask = layer(problem.action_mask, k)[None]
            weights = hyper.policy_rate * (q[0] - multiplier * unrolled_sum(len(q) - 1, lambda i: q[1 + i]))
            return base.softmax_policy(base.recentred(weights[None], mask), mask)[0]

        return truncated_plan(statistics.estimates.transitions, visits, payoffs, softmax)

    def bisect(i: Any, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        lower, upper = ends
        middle = jnp.where(i == 0, 0, (lower + upper) / 2)  # first Y = 0: if feasible, both ends stay there
        feasible = (softmax_pass(middle)[1][1:] <= problem.threshold).all(axis=0)
        return jnp.where(feasible, lower, middle), jnp.where(feasible, middle, upper)

    ends = jnp.zeros_like(hyper.dual_cap), hyper.dual_cap
    _, multiplier = jax.lax.fori_loop(0, 1 + BISECTIONS, bisect, ends)
    return softmax_pass(multiplier)[0], multiplier


def init(problem: Problem, hyper: Hyperparameters) -> State:
    """With nothing seen all actions are alike and cost nothing: pi_1 is uniform, Y_1 = 0."""
    return State(
        statistics=nothing_seen(problem),
        policy=base.uniform_policy(problem.action_mask, problem.threshold.dtype),
        multipliers=jnp.zeros_like(problem.threshold),
    )


def update(
    problem: Problem, hyper: Hyperparameters, state: State, policy: jax.Array, trajectory: Trajectory
) -> tuple[State, Info]:
    """Episode t is counted, then Y_{t+1} and its policy are found."""
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
