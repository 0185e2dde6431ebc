"""OPSE (Kitamura et al. 2025, OPSE-LCMDP; here in tabular form): no violation in any episode, by softmax policies.

What it does: in every episode it looks for the least multiplier whose softmax policy satisfies the constraint even with
PESSIMISTIC costs, and plays that policy; where no multiplier up to a cap does, it plays the safe policy pi_b. Rewards
are optimistic, and a further value, the compensation, makes uncertain pairs attractive.
Cost per episode: 27 backward passes over 2 + m values, each O(L S^2 A): 40 times the work of `optprimaldual`.
Guarantee: with high probability no constraint is violated in ANY episode, and regret of order H^4 sqrt(d^5 T) / gap,
d = |X||A| for tables. For one constraint. With "theory" pi_b is played for longer than any feasible run.
When to use it: no episode may be unsafe, a safe policy is known, and linear programs are too slow. Extra knowledge:
pi_b and its true cost C_b. Needs T, not rho; gap = alpha - C_b.

    pass(lam), backwards over the layers k, with the counts from before episode t:
        Q^g = min(L-k, g_hat + w + P_hat V^g),   Q^r = min(1 + (L-k-1) E, r_hat + E w + P_hat V^r)
        Q^c = B s + min(B (L-k-1), B (L-k-1) s + P_hat V^c),   s = w / (L-k)
        pi(a|x) prop. to exp(c (Q^c + Q^r - lam Q^g)),   V = sum_a pi Q for each;   V^r = sum_a pi (Q^r - ln pi / c)
    lam_t = 0 if pass(0) has V^g(x_0) <= alpha; else pi_b if pass(cap) is infeasible; else 24 bisections, feasible end
    w = min(L-k, b),   L-k if never seen;   E = 1 + ln|A| / c
    B = 4 H^2 / gap,   c = 32 H^2 (B + 1) sqrt(T) / gap^2,   cap = 8 (H E)^2 (B + 1) / gap
The bonus b = beta_r + H sum_y beta_p(y) is that of `optimistic`. pi_1 = pi_b. `infeasible` counts the episodes of pi_b.

Deviations: the paper is for linear CMDPs and states its constants up to logarithms; this is its form for tables, with
counts in place of ridge regression, b for its widths, and payoffs that are unknown. Several constraints are rejected:
with one multiplier for the sum of the costs the regret is linear as soon as one is slack. For "tuned" see
`hyperparameters`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common.types import Array, Trajectory
from cpdpo_jax.kernels import recentred, softmax_policy
from cpdpo_jax.kernels.loops import layer, scan_layers_backwards, unrolled_sum, with_layer
from cpdpo_jax.kernels.optimistic import steps_to_go
from cpdpo_jax.learners import base, optimistic, safe_planning
from cpdpo_jax.learners.base import Info, Learner, Problem
from cpdpo_jax.learners.bisection import bisect
from cpdpo_jax.learners.optimistic import Statistics, count, nothing_seen


class Hyperparameters(NamedTuple):
    """All [B], traced: sweeping them does not recompile."""

    compensation: Array  # B
    policy_rate: Array  # c, the inverse temperature of the softmax
    dual_cap: Array  # the largest multiplier
    transition_confidence: Array  # multiplies the logarithm in beta_p
    payoff_confidence: Array  # multiplies the logarithm in beta_r


class State(NamedTuple):
    """State before episode t: counts, and the policy computed from them."""

    statistics: Statistics
    policy: jax.Array  # [L,S,A,B] pi_t
    multipliers: jax.Array  # [M,B] lam_t
    fallback: jax.Array  # [B] int32, 1 if pi_t is pi_b
    fallbacks: jax.Array  # [B] int32, episodes before t in which pi_b was played


class Payoffs(NamedTuple):
    """The terms of a backward pass: Q = extra + min(most, payoff + P_hat V); reward, compensation, then costs."""

    payoff: jax.Array  # [2+M,L,S,A,B]
    most: jax.Array  # [2+M,L,1,1,B or 1]
    extra: jax.Array  # [L,S,A,B] of the compensation


def hyperparameters(problem: Problem, preset: str = "tuned") -> Hyperparameters:
    """The paper's constants, as far as it states them ("theory"), or small constants ("tuned") without a guarantee.

    "tuned" was chosen by hand on two random CMDPs (5 layers of 5 states, 3 actions, keys 1000 and 1001, T = 4,000).
    Log-uniform ranges for a search: policy_rate 0.1..30 sqrt(T), dual_cap 5..100, compensation 1e-3..1,
    transition_confidence 1e-7..1e-3, payoff_confidence 1e-4..1e-1.
    """
    n_constraints = problem.threshold.shape[0]
    if n_constraints > 1:
        raise ValueError(
            f"the learner 'opse' handles one constraint, but the CMDP has {n_constraints}; keep one of them, or "
            "choose a learner that is safe with several, such as 'optpess_lp' or 'dope'."
        )
    ones, root = np.ones_like(problem.episodes), np.sqrt(problem.episodes)
    if preset == "theory":
        n_layers, gap = problem.action_mask.shape[0], safe_planning.gap(problem)
        compensation = 4 * n_layers**2 / gap
        rate = 32 * n_layers**2 * (compensation + 1) * root / gap**2
        reach = n_layers * (1 + np.log(problem.n_actions) / rate)
        return Hyperparameters(compensation, rate, 8 * reach**2 * (compensation + 1) / gap, ones, ones)
    return Hyperparameters(0.01 * ones, 15 * root, 20 * ones, 1e-6 * ones, 1e-3 * ones)


def payoffs_of(problem: Problem, hyper: Hyperparameters, statistics: Statistics) -> tuple[Payoffs, jax.Array]:
    """Shared by the passes of an episode, and max(1,n) [L,S,A,B]."""
    log, estimates = optimistic.log_term(problem), statistics.estimates
    visits = jnp.maximum(estimates.visits, 1).astype(estimates.payoff_sum.dtype)
    bonus = optimistic.payoff_width(visits, hyper.payoff_confidence * log) + optimistic.transition_bonus(
        statistics.deviation, visits, problem.action_mask, hyper.transition_confidence * log
    )
    mean = estimates.payoff_sum / visits
    left = steps_to_go(mean)[0][:, None, None]  # L-k, [L,1,1,*1]
    width = jnp.where(estimates.visits > 0, jnp.minimum(left, bonus), left)
    raised = 1 + jnp.log(problem.n_actions) / hyper.policy_rate  # E
    extra, beyond = hyper.compensation * width / left, hyper.compensation * (left - 1)
    payoff = jnp.concatenate([(mean[0] + raised * width)[None], ((left - 1) * extra)[None], mean[1:] + width])
    most = [1 + (left - 1) * raised, beyond, *[jnp.broadcast_to(left, beyond.shape)] * (len(mean) - 1)]
    return Payoffs(payoff, jnp.stack(most), extra), visits


def softmax_pass(
    problem: Problem,
    hyper: Hyperparameters,
    counts: jax.Array,
    visits: jax.Array,
    payoffs: Payoffs,
    multiplier: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """pass(lam): counts [L-1,S,A,S,B], visits [L,S,A,B], lam [B] -> (policy [L,S,A,B], V^g(x_0) [M,B])."""
    n_payoffs, n_layers, n_states, n_actions = payoffs.payoff.shape[:4]
    per_visit, dtype = 1 / visits, payoffs.payoff.dtype
    values = jnp.zeros((n_layers, n_payoffs, n_states, *payoffs.payoff.shape[4:]), dtype)

    def chosen(k: Any, q: jax.Array, both: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        policy, values = both
        q = jnp.minimum(q, layer(payoffs.most, k, axis=1))
        reward, compensation, costs = q[0], q[1] + layer(payoffs.extra, k), q[2:]
        weights = compensation + reward - multiplier * unrolled_sum(len(costs), lambda i: costs[i])
        mask = layer(problem.action_mask, k)[None]
        pi = softmax_policy(hyper.policy_rate * recentred(weights[None], mask), mask)[0]
        entropy = jnp.where(pi > 0, pi * jnp.log(jnp.where(pi > 0, pi, 1)), 0)  # -pi ln pi is what is added
        terms = jnp.concatenate(
            [(pi * reward - entropy / hyper.policy_rate)[None], (pi * compensation)[None], pi * costs]
        )
        value = unrolled_sum(n_actions, lambda a: terms[:, :, a])
        return with_layer(policy, k, pi), with_layer(values, k, value)

    def step(k: Any, both: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        arrivals, ahead = layer(counts, k), layer(both[1], k + 1)
        total = unrolled_sum(n_states, lambda y: arrivals[None, :, :, y].astype(dtype) * ahead[:, y, None, None])
        return chosen(k, layer(payoffs.payoff, k, axis=1) + layer(per_visit, k) * total, both)

    start = jnp.zeros(payoffs.payoff.shape[1:], dtype), values
    last = chosen(n_layers - 1, payoffs.payoff[:, -1], start)
    policy, values = scan_layers_backwards(n_layers - 1, n_states, step, last)
    return policy, values[0, 2:, 0]


def choose_policy(
    problem: Problem, hyper: Hyperparameters, statistics: Statistics
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(pi_t [L,S,A,B], lam_t [B], whether pi_t is pi_b [B]) of the counts before episode t."""
    payoffs, visits = payoffs_of(problem, hyper, statistics)

    def passed(multiplier: jax.Array) -> tuple[jax.Array, jax.Array]:
        return softmax_pass(problem, hyper, statistics.estimates.transitions, visits, payoffs, multiplier)

    def cost(multiplier: jax.Array) -> jax.Array:
        return passed(multiplier)[1]

    multiplier, fails = bisect(cost, problem.threshold, hyper.dual_cap, try_cap=True)
    policy = jnp.where(fails, safe_planning.known(problem).policy, passed(multiplier)[0])
    return policy, jnp.where(fails, hyper.dual_cap, multiplier), fails


def init(problem: Problem, hyper: Hyperparameters) -> State:
    """Before any visit no policy is surely feasible: pi_1 = pi_b."""
    none = jnp.zeros(problem.threshold.shape[1:], jnp.int32)
    return State(
        statistics=nothing_seen(problem),
        policy=jnp.asarray(safe_planning.known(problem).policy),
        multipliers=jnp.broadcast_to(hyper.dual_cap, problem.threshold.shape),
        fallback=none + 1,
        fallbacks=none,
    )


def update(
    problem: Problem, hyper: Hyperparameters, state: State, policy: jax.Array, trajectory: Trajectory
) -> tuple[State, Info]:
    """Count episode t, then compute lam_{t+1} and its policy."""
    statistics = count(state.statistics, trajectory)
    policy, multiplier, fails = choose_policy(problem, hyper, statistics)
    fallbacks = state.fallbacks + state.fallback
    info = optimistic.info(state.multipliers)._replace(infeasible=fallbacks)
    multipliers = jnp.broadcast_to(multiplier, problem.threshold.shape)
    return State(statistics, policy, multipliers, fails.astype(jnp.int32), fallbacks), info


LEARNER = base.register(
    Learner(
        name="opse",
        hyperparameters=hyperparameters,
        init=init,
        policy=lambda problem, hyper, state: state.policy,
        update=update,
        most_constraints=1,
        extra_knowledge=base.SAFE_POLICY,
    )
)
