"""CPD-PO, constrained primal-dual policy optimisation (Algorithm 2): the main learner of this package.

Strong regret and strong violation of order sqrt(T) with high probability (Theorems 1 and 2); per episode one PO-DB
step, O(L^2 S^4 A), and one value function per constraint. It needs the Slater margin rho > 0 and T beforehand.

As printed, the estimators of line 6 include episode t, so the loss ell_t depends on the trajectory whose importance
weights multiply it; PO-DB's analysis requires a loss that is fixed given the past. The learner
`cpdpo_past` repairs this: it computes multipliers and loss of episode t from the counts before t (measured in
`docs/cpd_oppo.md`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common.types import Array, Trajectory
from cpdpo_jax.kernels import dual_max, hoeffding_width, lagrangian_loss, root_value
from cpdpo_jax.kernels.lookup import at_pairs
from cpdpo_jax.kernels.tracing import materialise
from cpdpo_jax.learners import base, cpdpo_analysis, podb
from cpdpo_jax.learners.base import Info, Learner, Problem
from cpdpo_jax.learners.estimates import Estimates, empirical_transition, empty, observe


class Hyperparameters(NamedTuple):
    """All [B], traced: sweeping them does not recompile. The first five are PO-DB's."""

    learning_rate: Array  # eta
    exploration: Array  # gamma, the implicit exploration
    bonus_scale: Array  # multiplies b_t
    dilation: Array  # factor per step of the bonus recursion; 1 is no dilation
    transition_confidence: Array  # multiplies the logarithm in the transition widths
    reward_confidence: Array  # multiplies the logarithm in phi
    cost_confidence: Array  # multiplies the logarithm in xi
    dual_cap: Array  # the larger of the two multipliers, (L+1)/rho
    loss_scale: Array  # the loss is divided by it before PO-DB, 2(L+1)m/rho
    clip: Array  # 1 clips r_hat + phi and g_hat - xi into [0, 1], 0 does not


class State(NamedTuple):
    """CPD-PO's state."""

    estimates: Estimates
    primal: podb.Primal


def hyperparameters(problem: Problem, preset: str = "tuned") -> Hyperparameters:
    """The paper's and PO-DB's constants ("theory"), or these rescaled by `experiments/tuning` ("tuned").

    Deviation: tuned. Its cap, 0.5 (L+1)/rho, is too small for some CMDPs: below an optimal multiplier, violation
    grows linearly. (It exceeds the optimal multipliers of all environments here.)
    """
    n_layers, n_constraints = problem.action_mask.shape[0], problem.threshold.shape[0]
    ones = np.ones_like(problem.episodes)
    cap = (n_layers + 1) / problem.slater_margin
    theory = Hyperparameters(
        **podb.hyperparameters(problem, "theory")._asdict(),
        reward_confidence=ones,
        cost_confidence=ones,
        dual_cap=cap,
        loss_scale=2 * n_constraints * cap,
        clip=0 * ones,
    )
    if preset == "theory":
        return theory
    return podb.tuned(theory, problem)._replace(
        reward_confidence=2e-4 * ones,
        cost_confidence=2e-4 * ones,
        dual_cap=0.5 * theory.dual_cap,
        loss_scale=0.5 * theory.loss_scale,
    )


def widths(problem: Problem, hyper: Hyperparameters, visits: jax.Array) -> tuple[jax.Array, jax.Array]:
    """phi of Lemma 1 and xi of Lemma 2 for visits n >= 1, of their shape."""
    log, n_constraints = podb.log_pairs(problem), problem.threshold.shape[0]
    phi = hoeffding_width(visits, hyper.reward_confidence * log)
    return phi, hoeffding_width(visits, hyper.cost_confidence * (log + float(np.log(n_constraints))))


def optimistic_payoffs(problem: Problem, hyper: Hyperparameters, estimates: Estimates) -> tuple[jax.Array, jax.Array]:
    """r_hat + phi [L,S,A,B] and g_hat - xi [M,L,S,A,B] at every pair."""
    dtype = estimates.payoff_sum.dtype
    visits = jnp.maximum(estimates.visits, 1).astype(dtype)
    mean, (phi, xi) = estimates.payoff_sum * (1 / visits), widths(problem, hyper, visits)
    is_reward = (jnp.arange(len(mean)) == 0).reshape(-1, *(1,) * phi.ndim)
    payoffs = mean + jnp.where(is_reward, phi, -xi)
    payoffs = materialise(jnp.where(hyper.clip > 0, jnp.clip(payoffs, 0, 1), payoffs))
    return payoffs[0], payoffs[1:]


def init(problem: Problem, hyper: Hyperparameters) -> State:
    """Algorithm 2, lines 1 and 2: PO-DB's first policy; all estimators, counters and bounds at their start."""
    return State(estimates=empty(problem, as_sampled=True), primal=podb.start(problem))


def update(
    problem: Problem,
    hyper: Hyperparameters,
    state: State,
    policy: jax.Array,
    trajectory: Trajectory,
    *,
    dual: Callable[[jax.Array, Array, Array], jax.Array] = dual_max,
    past_counts: bool = False,
) -> tuple[State, Info]:
    """Algorithm 2, lines 6 to 9, after `policy` [L,S,A,B] was played (line 4) and `trajectory` observed (line 5).

    `dual` is line 7: it maps values and thresholds [M,B] and the cap [B] to multipliers [M,B]. `past_counts` leaves
    episode t out of lines 6 to 8.
    """
    # Line 6: the estimators
    counted = observe(state.estimates, trajectory)
    estimates = state.estimates if past_counts else counted
    reward_upper, cost_lower = optimistic_payoffs(problem, hyper, estimates)  # r_hat + phi, g_hat - xi

    # Line 7: the dual max, a binary choice per constraint
    values = root_value(empirical_transition(estimates), policy, cost_lower)
    multipliers = dual(values, problem.threshold, hyper.dual_cap)

    # Line 8: the Lagrangian loss of the visited pairs
    reward_upper, cost_lower = (at_pairs(trajectory.state, trajectory.action, p) for p in (reward_upper, cost_lower))
    loss = lagrangian_loss(reward_upper, cost_lower, multipliers, problem.threshold, hyper.dual_cap, len(policy))

    # Line 9: PO-DB's update, which takes losses in [0, 1]. Deviation: loss-scale
    primal = podb.step(problem, hyper, state.primal, counted, policy, trajectory, loss / hyper.loss_scale)
    return State(counted, primal), Info(multipliers, primal.epochs)


def update_past(
    problem: Problem, hyper: Hyperparameters, state: State, policy: jax.Array, trajectory: Trajectory
) -> tuple[State, Info]:
    """`update` of `cpdpo_past`: lines 6 to 8 from the counts before episode t."""
    return update(problem, hyper, state, policy, trajectory, past_counts=True)


ABOUT = {  # the module's docstring describes cpdpo
    "cpdpo_past": "CPD-PO whose multipliers and loss use the counts before the episode: a variant of cpdpo.\n\n"
    "PO-DB's analysis requires a loss that is fixed given the past; as printed, the estimators of line 6 include\n"
    "episode t.",
}
LEARNER = base.register(
    Learner(
        name="cpdpo",
        hyperparameters=hyperparameters,
        init=init,
        policy=podb.policy,
        update=update,
        needs_slater=True,
        analysis=cpdpo_analysis.analysis(widths, past_counts=False),
    )
)
PAST = base.register(
    replace(LEARNER, name="cpdpo_past", update=update_past, analysis=cpdpo_analysis.analysis(widths, past_counts=True))
)
