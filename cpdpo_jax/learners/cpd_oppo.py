"""CPD-OPPO: CPD-PO's dual max with a full-information primal step. This project's own algorithm, not peer-reviewed.

What it does: evaluates the policy it plays optimistically under the empirical model, sets each multiplier to 0 or to
the cap by the sign of the optimistic violation (the dual max of CPD-PO), and takes one step of exponential weights on
Q^r - sum_i lambda_i Q^{g_i}. CPD-PO hands the same Lagrangian to PO-DB, an algorithm for bandit feedback; but the
learner made that loss itself and knows it at every pair. So there are no importance weights, no occupancy bounds, no
bonus recursion, and the constant (L+1)m/rho, which hides the reward in PO-DB's losses, cancels in the softmax.
Cost per episode: one truncated value function per payoff, O((1+m) L S^2 A).
Guarantee ("theory"): strong regret O~((m L^2/rho) |X| sqrt(|A| T)) and strong violation O~(m L^2 |X| sqrt(|A| T)), with
probability 1 - delta. Needs rho (for the cap) and T; see `anytime` and `patience` for runs without.

    beta = min(1, sqrt(ln(8 T|X||A|m/delta) / n)),   n = max(1, N)
    w = min(2, sqrt(2 (|X_{k+1}| ln 2 + ln(8 T|X||A|/delta)) / n)), 0 in the last layer
    Q^r_k     = min(L-k, min(1, r_hat + beta) + (L-k-1) w/2 + P_hat V^r_{k+1})
    Q^{g_i}_k = max(0,   max(0, g_hat_i - beta) - (L-k-1) w/2 + P_hat V^{g_i}_{k+1}),       V = sum_a pi_t Q
    lambda_i = kappa if V^{g_i}(x_0) > alpha_i else 0,  kappa = (L+1)/rho
    pi_{t+1}(a|x) prop. to exp(eta sum_{s <= t} Q_s(x,a)),  eta = sqrt(8 ln|A| / T) / (L (1 + kappa m)),  pi_1 uniform

Union bound: Hoeffding, two sides, for 1 + m payoffs at |X||A| pairs and all n <= T fails with probability at most
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
from cpdpo_jax.kernels import dual_max, for_accelerator
from cpdpo_jax.kernels.accelerator import together
from cpdpo_jax.learners import base, cpd_oppo_analysis, optimistic
from cpdpo_jax.learners.base import Info, Learner, Problem
from cpdpo_jax.learners.cpd_oppo_evaluation import evaluate
from cpdpo_jax.learners.estimates import Estimates, empty, observe


class Hyperparameters(NamedTuple):
    """All [B], traced: sweeping them does not recompile."""

    policy_rate: Array  # eta
    dual_cap: Array  # kappa, the larger of the two multipliers, (L+1)/rho; with `patience` the first one
    transition_confidence: Array  # multiplies the logarithms in w
    payoff_confidence: Array  # multiplies the logarithm in beta
    anytime: Array  # 1: eta falls as 1/sqrt(t) and logarithms use t(t+1) for T, so that nothing depends on T
    adaptive_rate: Array  # 1: eta of a state falls with the ranges of Q seen there, not with the largest possible one
    patience: Array  # above 0: the cap doubles when optimistic violation persists, beyond patience L sqrt(episodes)


class Phase(NamedTuple):
    """Since the cap was doubled last."""

    violation: jax.Array  # [B] sum of the worst optimistic violation
    first: jax.Array  # [B] int32, episodes done before it


class State(NamedTuple):
    """After some episodes."""

    estimates: Estimates
    advantage: jax.Array  # [L,S,A,B] sum of Q so far, the largest allowed one of each state at 0
    range_sum: jax.Array  # [L,S,B] sum of (max_a Q - min_a Q)^2 so far
    cap: jax.Array  # [B] kappa as it is now
    phase: Phase
    episodes: jax.Array  # [B] int32, done


def hyperparameters(problem: Problem, preset: str = "tuned") -> Hyperparameters:
    """The constants of the proof ("theory"), or those with the multipliers that `experiments/tuning` chose ("tuned").

    "tuned" has 32 times the rate, 0.6 of the cap, and hardly any widths: what explores is the slow softmax.
    Deviation: tuned. A cap of 0.6 (L+1)/rho is no longer large enough for every CMDP: where it is below an optimal
    multiplier, violation grows linearly.
    """
    n_layers, n_constraints = problem.action_mask.shape[0], problem.threshold.shape[0]
    one = np.ones_like(problem.episodes)
    cap = (n_layers + 1) / problem.slater_margin
    theory = Hyperparameters(
        policy_rate=np.sqrt(8 * np.log(problem.n_actions) / problem.episodes) / (n_layers * (1 + n_constraints * cap)),
        dual_cap=cap,
        transition_confidence=one,
        payoff_confidence=one,
        anytime=0 * one,
        adaptive_rate=0 * one,
        patience=0 * one,
    )
    if preset == "theory":
        return theory
    return theory._replace(
        policy_rate=32 * theory.policy_rate,
        dual_cap=0.6 * theory.dual_cap,
        transition_confidence=1.2e-5 * one,
        payoff_confidence=5e-7 * one,
    )


def init(problem: Problem, hyper: Hyperparameters) -> State:
    """pi_1 uniform, nothing seen."""
    zero = jnp.zeros(problem.action_mask.shape, problem.threshold.dtype)
    none = jnp.zeros(problem.threshold.shape[1:], jnp.int32)
    cap = jnp.broadcast_to(hyper.dual_cap, none.shape).astype(zero.dtype)
    phase = Phase(jnp.zeros_like(cap), none)
    return State(empty(problem), advantage=zero, range_sum=zero[:, :, 0], cap=cap, phase=phase, episodes=none)


def rate(problem: Problem, hyper: Hyperparameters, state: State) -> jax.Array:
    """eta_t of every state, [L,S,B]; `policy_rate` unless one of the options asks for less knowledge."""
    n_layers, n_constraints = problem.action_mask.shape[0], problem.threshold.shape[0]
    eta = hyper.policy_rate
    eta = jnp.where(
        hyper.patience > 0, eta * (1 + hyper.dual_cap * n_constraints) / (1 + state.cap * n_constraints), eta
    )
    span = n_layers * (1 + state.cap * n_constraints)  # the largest range that Q can have
    horizon = jnp.sqrt(problem.episodes)  # below no quotient by a root: see `kernels/cpu/README.md`
    falling = eta * horizon * jnp.sqrt(1 / (state.episodes + 1).astype(state.cap.dtype))
    adapted = eta * span * horizon * jnp.sqrt(1 / (span**2 + state.range_sum))
    return jnp.where(hyper.adaptive_rate > 0, adapted, jnp.where(hyper.anytime > 0, falling, eta))


def policy(problem: Problem, hyper: Hyperparameters, state: State) -> jax.Array:
    """pi_t(a|x) prop. to exp(eta_t(x) sum_{s < t} Q_s(x,a)), [L,S,A,B]."""
    log_weights = rate(problem, hyper, state)[:, :, None] * state.advantage
    return base.softmax_policy(log_weights, problem.action_mask)


def update(
    problem: Problem, hyper: Hyperparameters, state: State, policy: jax.Array, trajectory: Trajectory
) -> tuple[State, Info]:
    """Steps 4 and 1 to 3, after `policy` [L,S,A,B] was played: count, evaluate, dual max, exponential weights."""
    return update_with(dual_max, problem, hyper, state, policy, trajectory)


def update_with(
    dual: Callable[[jax.Array, Array, Array], jax.Array],
    problem: Problem,
    hyper: Hyperparameters,
    state: State,
    policy: jax.Array,
    trajectory: Trajectory,
) -> tuple[State, Info]:
    """`update` with step 2 to choose: `dual` maps values and thresholds [M,B] and the cap [B] to multipliers [M,B]."""
    # Step 4: count episode t (before the rest: the proof holds with these counts too, as CPD-PO's does)
    estimates = observe(state.estimates, trajectory)
    if for_accelerator():  # nobody reads the old counts once there are new ones: they would be copied
        visits, transitions = together((estimates.visits, estimates.transitions))
        estimates = estimates._replace(visits=visits, transitions=transitions)

    # Step 1: the optimistic value of pi_t, for the reward and for every cost
    seen = evaluate(problem, hyper, estimates, policy)

    # Step 2: the dual max, a binary choice per constraint
    multipliers = dual(seen.values[1:], problem.threshold, state.cap)

    # Step 3: exponential weights on the Lagrangian's action values
    q = optimistic.lagrangian(seen.action_values, multipliers)
    advantage = base.recentred(state.advantage + q, problem.action_mask)
    cap, phase = _patient_cap(problem, hyper, state, seen.values[1:])
    after = State(
        estimates=estimates,
        advantage=advantage,
        range_sum=state.range_sum + _span(q, problem.action_mask) ** 2,
        cap=cap,
        phase=phase,
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


def _patient_cap(
    problem: Problem, hyper: Hyperparameters, state: State, cost_values: jax.Array
) -> tuple[jax.Array, Phase]:
    """The cap doubles when the sum of optimistic violations since the last doubling exceeds patience L sqrt(episodes).

    What is known: V^{g_i}_t is a lower bound, so such a violation is a real one; a cap below an optimal multiplier
    leaves a violation that grows linearly, and is noticed; and a cap doubles only in a phase at least as long as all
    before it, so at most 1 + log2 T times. Not proven: that a cap large enough is never doubled, nor any regret bound.
    """
    excess = jnp.maximum(cost_values - problem.threshold, 0)
    worst = excess[0]
    for i in range(1, len(excess)):
        worst = jnp.maximum(worst, excess[i])
    violation, length = state.phase.violation + worst, state.episodes + 1 - state.phase.first
    allowed = hyper.patience * problem.action_mask.shape[0] * jnp.sqrt(length.astype(violation.dtype))
    doubles = (hyper.patience > 0) & (violation > allowed) & (length >= state.phase.first)
    phase = Phase(jnp.where(doubles, 0, violation), jnp.where(doubles, state.episodes + 1, state.phase.first))
    return jnp.where(doubles, 2 * state.cap, state.cap), phase


LEARNER = base.register(
    Learner(
        name="cpd_oppo",
        hyperparameters=hyperparameters,
        init=init,
        policy=policy,
        update=update,
        needs_slater=True,
        analysis=cpd_oppo_analysis.made_of(evaluate),
    )
)
