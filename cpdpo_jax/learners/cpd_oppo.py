"""CPD-OPPO: CPD-PO's dual max with a full-information primal step. This project's own algorithm, not peer-reviewed.

What it does: evaluates the policy it plays optimistically under the empirical model, sets each multiplier to 0 or to
the cap by the sign of the optimistic violation (the dual max of CPD-PO), and takes one step of exponential weights on
Q^r - sum_i lambda_i Q^{g_i}. CPD-PO passes the same Lagrangian to PO-DB, an algorithm for bandit feedback; but the
learner computes that loss itself and knows it at every pair. So it needs no importance weights, occupancy bounds or
bonus recursion, and the constant (L+1)m/rho, which hides the reward in PO-DB's losses, cancels in the softmax.
Cost per episode: one truncated value function per payoff, O((1+m) L S^2 A).
Guarantee ("theory"): strong regret O~((m L^2/rho) |X| sqrt(|A| T)) and strong violation O~(m L^2 |X| sqrt(|A| T)), with
probability 1 - delta. Needs rho (for the cap) and T; with `anytime` it does not need T.

    beta = min(1, sqrt(ln(8 T|X||A|m/delta) / n)),   n = max(1, N)
    w = min(2, sqrt(2 (|X_{k+1}| ln 2 + ln(8 T|X||A|/delta)) / n)), 0 in the last layer
    Q^r_k     = min(L-k, min(1, r_hat + beta) + (L-k-1) w/2 + P_hat V^r_{k+1})
    Q^{g_i}_k = max(0,   max(0, g_hat_i - beta) - (L-k-1) w/2 + P_hat V^{g_i}_{k+1}),       V = sum_a pi_t Q
    lambda_i = kappa if V^{g_i}(x_0) > alpha_i else 0,  kappa = (L+1)/rho
    pi_{t+1}(a|x) prop. to exp(eta sum_{s <= t} Q_s(x,a)),  eta = sqrt(8 ln|A| / T) / (L (1 + kappa m)),  pi_1 uniform

Union bound: two-sided Hoeffding for 1 + m payoffs at |X||A| pairs and all n <= T fails with probability at most
2(1+m)/(8m) delta <= delta/2 (beta has no factor 1/2, so its square suffices); the L1 bound of Weissman et al. for the
rows with at most delta/8. A pair never visited has beta = 1 and w = 2, whatever the multipliers: Q^r = L-k, Q^g = 0.
Counts include episode t, as in CPD-PO.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common.types import Array, Trajectory
from cpdpo_jax.kernels import dual_max, recentred, softmax_policy
from cpdpo_jax.learners import base, cpd_oppo_analysis, optimistic
from cpdpo_jax.learners.base import Info, Learner, Problem
from cpdpo_jax.learners.cpd_oppo_evaluation import evaluate
from cpdpo_jax.learners.estimates import Estimates, empty, observe


class Hyperparameters(NamedTuple):
    """All [B], traced: sweeping them does not recompile."""

    policy_rate: Array  # eta
    dual_cap: Array  # kappa, the larger of the two multipliers, (L+1)/rho
    transition_confidence: Array  # multiplies the logarithms in w
    payoff_confidence: Array  # multiplies the logarithm in beta
    anytime: Array  # 1: eta decreases as 1/sqrt(t) and logarithms use t(t+1) for T, so nothing depends on T
    adaptive_rate: Array  # 1: eta of a state decreases with the ranges of Q observed there, not with the largest range


class State(NamedTuple):
    """CPD-OPPO's state."""

    estimates: Estimates
    advantage: jax.Array  # [L,S,A,B] sum of Q so far, shifted so that the maximum over allowed actions is 0
    range_sum: jax.Array  # [L,S,B] sum of (max_a Q - min_a Q)^2 so far
    episodes: jax.Array  # [B] int32, done


def hyperparameters(problem: Problem, preset: str = "tuned") -> Hyperparameters:
    """The constants of the proof ("theory"), or these rescaled by `experiments/tuning` ("tuned").

    "tuned" has 32 times the rate, 0.6 of the cap, and negligible widths: exploration comes from the slow softmax.
    Deviation: tuned. A cap of 0.6 (L+1)/rho is too small for some CMDPs: below an optimal multiplier, violation
    grows linearly.
    """
    n_layers, n_constraints = problem.action_mask.shape[0], problem.threshold.shape[0]
    ones = np.ones_like(problem.episodes)
    cap = (n_layers + 1) / problem.slater_margin
    theory = Hyperparameters(
        policy_rate=np.sqrt(8 * np.log(problem.n_actions) / problem.episodes) / (n_layers * (1 + n_constraints * cap)),
        dual_cap=cap,
        transition_confidence=ones,
        payoff_confidence=ones,
        anytime=0 * ones,
        adaptive_rate=0 * ones,
    )
    if preset == "theory":
        return theory
    return theory._replace(
        policy_rate=32 * theory.policy_rate,
        dual_cap=0.6 * theory.dual_cap,
        transition_confidence=1.2e-5 * ones,
        payoff_confidence=5e-7 * ones,
    )


def init(problem: Problem, hyper: Hyperparameters) -> State:
    """State before the first episode; pi_1 is uniform."""
    zero = jnp.zeros(problem.action_mask.shape, problem.threshold.dtype)
    done = jnp.zeros(problem.threshold.shape[1:], jnp.int32)
    return State(empty(problem, as_sampled=True), advantage=zero, range_sum=zero[:, :, 0], episodes=done)


def rate(problem: Problem, hyper: Hyperparameters, state: State) -> jax.Array:
    """eta_t of every state, [L,S,B]; `policy_rate` unless an option requires less knowledge."""
    n_layers, n_constraints = problem.action_mask.shape[0], problem.threshold.shape[0]
    eta = hyper.policy_rate
    span = n_layers * (1 + hyper.dual_cap * n_constraints)  # the largest possible range of Q
    horizon = jnp.sqrt(problem.episodes)  # below no quotient by a root: see `kernels/machines/README.md`
    falling = eta * horizon * jnp.sqrt(1 / (state.episodes + 1).astype(span.dtype))
    adapted = eta * span * horizon * jnp.sqrt(1 / (span**2 + state.range_sum))
    return jnp.where(hyper.adaptive_rate > 0, adapted, jnp.where(hyper.anytime > 0, falling, eta))


def policy(problem: Problem, hyper: Hyperparameters, state: State) -> jax.Array:
    """pi_t(a|x) prop. to exp(eta_t(x) sum_{s < t} Q_s(x,a)), [L,S,A,B]."""
    log_weights = rate(problem, hyper, state)[:, :, None] * state.advantage
    return softmax_policy(log_weights, problem.action_mask)


def update(
    problem: Problem,
    hyper: Hyperparameters,
    state: State,
    policy: jax.Array,
    trajectory: Trajectory,
    *,
    dual: Callable[[jax.Array, Array, Array], jax.Array] = dual_max,
) -> tuple[State, Info]:
    """Steps 4 and 1 to 3, after `policy` [L,S,A,B] was played: count, evaluate, dual max, exponential weights.

    `dual` is step 2: it maps values and thresholds [M,B] and the cap [B] to multipliers [M,B].
    """
    # Step 4: count episode t (before the rest: the proof holds with these counts too, as CPD-PO's does)
    estimates = observe(state.estimates, trajectory)

    # Step 1: the optimistic value of pi_t, for the reward and for every cost
    evaluation = evaluate(problem, hyper, estimates, policy)

    # Step 2: the dual max, a binary choice per constraint
    multipliers = dual(evaluation.values[1:], problem.threshold, hyper.dual_cap)

    # Step 3: exponential weights on the Lagrangian's action values
    q = optimistic.lagrangian(evaluation.action_values, multipliers)
    advantage = recentred(state.advantage + q, problem.action_mask)
    after = State(
        estimates=estimates,
        advantage=advantage,
        range_sum=state.range_sum + _span(q, problem.action_mask) ** 2,
        episodes=state.episodes + 1,
    )
    return after, Info(multipliers, jnp.zeros_like(state.episodes))


def _span(q: jax.Array, action_mask: jax.Array) -> jax.Array:
    """max_a Q - min_a Q over the allowed actions, 0 at padding: [L,S,A,B] -> [L,S,B]."""
    highest, lowest = jnp.where(action_mask, q, -jnp.inf), jnp.where(action_mask, q, jnp.inf)
    high, low = highest[:, :, 0], lowest[:, :, 0]
    for a in range(1, q.shape[2]):
        high, low = jnp.maximum(high, highest[:, :, a]), jnp.minimum(low, lowest[:, :, a])
    return jnp.maximum(high - low, 0)


LEARNER = base.register(
    Learner(
        name="cpd_oppo",
        hyperparameters=hyperparameters,
        init=init,
        policy=policy,
        update=update,
        needs_slater=True,
        analysis=cpd_oppo_analysis.analysis(evaluate),
    )
)
