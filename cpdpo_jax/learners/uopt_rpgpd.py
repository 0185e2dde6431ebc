"""UOpt-RPGPD (Kitamura et al. 2024): regularised policy gradient primal-dual, uniformly optimistic and anytime.

What it does: plays a policy, counts the episode, evaluates the same policy optimistically with an entropy added to the
reward, then takes one regularised exponentiated step of the policy and one regularised step of the multipliers. Rates
and regularisation fall with the episode; no constant depends on T.
Cost per episode: one truncated value function per payoff and one sum of entropies, O((2+m) L S^2 A).
Guarantee: uniform PAC and convergence of the last iterate: strong regret and strong violation of order T^{6/7} for the
exponents of their theorem. Those below are of their experiments.
When to use it: T unknown, or the policy of the last episode is used afterwards. Needs neither T nor rho.

    decay = (t+2)^-0.53,   eta = policy_rate decay,   eta_d = dual_rate decay,   tau = regularisation (t+2)^-0.4
    Q^r = min((1 + tau ln|A|) (L-k), r_hat + b + P_hat V^r),   V^r = sum_a pi_t (Q^r - tau ln pi_t)
    Q^{g_i} = max(0, g_hat_i - b + P_hat V^{g_i}),   V^{g_i} = sum_a pi_t Q^{g_i};   never seen: the bounds themselves
    ln pi_{t+1} = (1 - eta tau) ln pi_t + eta (Q^r - sum_i lambda_{t,i} Q^{g_i}) + a constant per state
    lambda_{t+1} = [(1 - eta_d tau) lambda_t + eta_d (V^g(x_0) - alpha)]_+
    b = sqrt(psi/n) + phi sum_y sqrt(P_hat(y)) + 5 phi^2 (in the last layer the first term alone),   phi = sqrt(psi/n)
    psi = 2 ln ln max(2n, e) + 2 ln(48 |X|^2 |A| H / delta)
with the counts that include episode t. Multipliers of psi and of b are hyperparameters. pi_1 is uniform, lambda_1 = 0.

Deviations: costs bounded from above in place of utilities from below; payoffs are unknown, hence the first term of b;
a pair never seen has the bounds, not a uniform row; their program multiplies the entropy by pi once more, and takes
the dual step with the new policy's first layer, both here as in the paper; 1 - eta tau is clipped at 0. The bonus lacks
the factor for the range of the values that a proof of optimism needs: transition_confidence = H^2 supplies it. The
authors' notebook has bonus_scale = 0.001.
For "tuned" see `hyperparameters`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from optax.projections import projection_non_negative

from cpdpo_jax.common.types import Array, Trajectory
from cpdpo_jax.kernels import recentred, softmax_policy, truncated_evaluation
from cpdpo_jax.kernels.counting import visited_pairs, visited_rows
from cpdpo_jax.kernels.lookup import at_pairs
from cpdpo_jax.kernels.loops import unrolled_sum
from cpdpo_jax.kernels.optimistic import steps_to_go
from cpdpo_jax.kernels.tracing import materialise
from cpdpo_jax.learners import base, optimistic
from cpdpo_jax.learners.base import Info, Learner, Problem
from cpdpo_jax.learners.estimates import Estimates, empty, observe
from cpdpo_jax.learners.regularized_primal_dual import surprise


class Hyperparameters(NamedTuple):
    """All [B], traced: sweeping them does not recompile."""

    policy_rate: Array  # the first step of the policy
    dual_rate: Array  # the first step of the multipliers
    rate_exponent: Array  # both rates decrease as (t+2)^-rate_exponent
    regularisation: Array  # the first tau
    regularisation_exponent: Array  # tau decreases as (t+2)^-regularisation_exponent
    transition_confidence: Array  # multiplies psi in phi
    payoff_confidence: Array  # multiplies psi in the width of rewards and costs
    bonus_scale: Array  # multiplies b


class State(NamedTuple):
    """State before episode t."""

    estimates: Estimates
    bonus: jax.Array  # [L,S,A,B] b, 0 if never seen; changes at the visited pairs only
    log_weights: jax.Array  # [L,S,A,B] ln pi_t + a constant per state; the maximum over allowed actions is 0
    multipliers: jax.Array  # [M,B] lambda_t
    episodes_done: jax.Array  # [B] int32, t-1


def hyperparameters(problem: Problem, preset: str = "tuned") -> Hyperparameters:
    """The constants of the authors' experiments ("theory"), or these rescaled by `experiments/tuning` ("tuned")."""
    ones = np.ones_like(problem.episodes)
    theory = Hyperparameters(
        policy_rate=ones,
        dual_rate=ones,
        rate_exponent=0.53 * ones,
        regularisation=ones,
        regularisation_exponent=0.4 * ones,
        transition_confidence=ones,
        payoff_confidence=ones,
        bonus_scale=ones,
    )
    if preset == "theory":
        return theory
    return theory._replace(
        policy_rate=0.25 * ones,
        dual_rate=94 * ones,
        regularisation=0.093 * ones,
        transition_confidence=7.8e-7 * ones,
        payoff_confidence=4.1e-3 * ones,
    )


def count(
    problem: Problem, hyper: Hyperparameters, estimates: Estimates, before: jax.Array, trajectory: Trajectory
) -> tuple[Estimates, jax.Array]:
    """Count one episode and recompute b [L,S,A,B] at the visited pairs; it depends on their counts alone."""
    after = observe(estimates, trajectory)
    n_states, n_actions = after.visits.shape[1:3]
    rows = visited_rows(trajectory.state, trajectory.action, after.transitions)
    visits = at_pairs(trajectory.state, trajectory.action, after.visits).astype(before.dtype)
    root_sum = unrolled_sum(n_states, lambda y: jnp.sqrt(rows[:, y].astype(before.dtype))) * jnp.sqrt(1 / visits[:-1])
    anew = materialise(bonus(problem, hyper, visits, root_sum))[:, None, None]
    visited = visited_pairs(trajectory.state, trajectory.action, n_states, n_actions)
    return after, jnp.where(visited, anew, before)


def bonus(problem: Problem, hyper: Hyperparameters, visits: jax.Array, root_sum: jax.Array) -> jax.Array:
    """b of n >= 1 visits [L,...,B] and sum_y sqrt(P_hat(y)) [L-1,...,B], the shape of `visits`."""
    union = 48 * problem.n_states**2 * problem.n_actions * visits.shape[0] / problem.delta
    per_visit = (2 * jnp.log(jnp.log(jnp.maximum(2 * visits, np.e))) + 2 * jnp.log(union)) / visits
    root = jnp.sqrt(hyper.transition_confidence * per_visit[:-1])
    of_transitions = jnp.abs(root * (root_sum + 5 * root))  # abs: a product, rounded before it is added
    width = jnp.sqrt(hyper.payoff_confidence * per_visit)
    return hyper.bonus_scale * (width + jnp.concatenate([of_transitions, jnp.zeros_like(visits[-1:])]))


def entropy_to_come(counts: jax.Array, visits: jax.Array, entropy: jax.Array) -> jax.Array:
    """sum_y P_hat(y|x,a) h(y) of the next layer's entropies, 0 in the last: entropy [L,S,B] -> [L,S,A,B]."""
    total = unrolled_sum(
        entropy.shape[1], lambda y: counts[:, :, :, y].astype(entropy.dtype) * entropy[1:, y, None, None]
    )
    return jnp.concatenate([total / visits[:-1], jnp.zeros_like(visits[-1:])])


def evaluate(
    problem: Problem, hyper: Hyperparameters, state: State, policy: jax.Array, tau: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """(Q of reward with entropy and of the costs [1+M,L,S,A,B], V^g(x_0) [M,B]) of the policy of `state`.

    The entropy of a layer is no part of its Q: the next layer's entropy is added to the reward beforehand, and
    the values of the recursion are those without it. The reward is divided by 1 + tau ln|A|: its ceiling is then L - k.
    """
    estimates = state.estimates
    visits = jnp.maximum(estimates.visits, 1).astype(policy.dtype)
    mean, width = estimates.payoff_sum / visits, state.bonus
    information = surprise(state.log_weights, problem.action_mask)
    entropy = tau * unrolled_sum(policy.shape[2], lambda a: policy[:, :, a] * information[:, :, a])
    reward = mean[:1] + width + entropy_to_come(estimates.transitions, visits, entropy)
    largest = 1 + tau * jnp.log(problem.n_actions)
    payoffs = optimistic.bound_if_unseen(jnp.concatenate([reward / largest, mean[1:] - width]), estimates.visits)
    action_values, values = truncated_evaluation(estimates.transitions, visits, policy, payoffs, steps_to_go(payoffs))
    raised = jnp.abs(largest * action_values[:1])  # abs: a product, rounded before it is added
    return jnp.concatenate([raised, action_values[1:]]), values[1:]


def init(problem: Problem, hyper: Hyperparameters) -> State:
    """pi_1 uniform, lambda_1 = 0."""
    estimates = empty(problem, as_sampled=True)
    zero = jnp.zeros(problem.action_mask.shape, problem.threshold.dtype)
    return State(
        estimates=estimates,
        bonus=zero,
        log_weights=zero,
        multipliers=jnp.zeros_like(problem.threshold),
        episodes_done=jnp.zeros(zero.shape[3:], jnp.int32),
    )


def policy(problem: Problem, hyper: Hyperparameters, state: State) -> jax.Array:
    """pi_t, [L,S,A,B]."""
    return softmax_policy(state.log_weights, problem.action_mask)


def update(
    problem: Problem, hyper: Hyperparameters, state: State, policy: jax.Array, trajectory: Trajectory
) -> tuple[State, Info]:
    """Count episode t, evaluate pi_t, then compute pi_{t+1} and lambda_{t+1}."""
    estimates, width = count(problem, hyper, state.estimates, state.bonus, trajectory)
    counted = state._replace(estimates=estimates, bonus=width)
    time = (state.episodes_done + 3).astype(policy.dtype)
    decay = time**-hyper.rate_exponent
    policy_rate, dual_rate = hyper.policy_rate * decay, hyper.dual_rate * decay
    tau = hyper.regularisation * time**-hyper.regularisation_exponent
    action_values, cost_values = evaluate(problem, hyper, counted, policy, tau)

    ascent = policy_rate * optimistic.lagrangian(action_values, state.multipliers)
    kept = state.log_weights - jnp.minimum(1, policy_rate * tau) * state.log_weights
    log_weights = recentred(kept + ascent, problem.action_mask)
    kept = state.multipliers - jnp.minimum(1, dual_rate * tau) * state.multipliers
    multipliers = projection_non_negative(kept + dual_rate * (cost_values - problem.threshold))
    after = State(estimates, width, log_weights, multipliers, state.episodes_done + 1)
    return after, optimistic.info(state.multipliers)


LEARNER = base.register(
    Learner(name="uopt_rpgpd", hyperparameters=hyperparameters, init=init, policy=policy, update=update)
)
