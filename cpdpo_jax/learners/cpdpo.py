"""CPD-PO, constrained primal-dual policy optimisation (Algorithm 2): the learner this package is about.

Strong regret and strong violation of order sqrt(T) with high probability (Theorems 1 and 2); per episode one PO-DB
step, O(L^2 S^4 A), and one value function per constraint. Needs the Slater margin rho > 0 and T beforehand.

As printed, the estimators of line 6 include episode t, so that the loss ell_t depends on the trajectory by whose
importance weights it is multiplied; PO-DB's analysis asks for a loss that is fixed given the past. `past_counts = 1`
repairs it: multipliers and loss of episode t are made of the counts from before t (measured in `docs/cpd_oppo.md`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common.types import Array, Trajectory
from cpdpo_jax.kernels import at_pairs, dual_max, for_accelerator, hoeffding_width, lagrangian_loss, policy_value
from cpdpo_jax.kernels.accelerator import together
from cpdpo_jax.learners import base, cpdpo_analysis, podb
from cpdpo_jax.learners.base import Info, Learner, Problem
from cpdpo_jax.learners.estimates import Estimates, empty, observe, observe_late, without


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
    past_counts: Array  # 1: lines 6 to 8 count only the episodes before t, so that ell_t is fixed given the past


class State(NamedTuple):
    """CPD-PO's state."""

    estimates: Estimates
    primal: podb.Primal


def hyperparameters(problem: Problem, preset: str = "tuned") -> Hyperparameters:
    """The paper's and PO-DB's constants ("theory"), or those with the multipliers of `experiments/tuning` ("tuned").

    Deviation: tuned. Its cap, 0.5 (L+1)/rho, is no longer large enough for every CMDP: where it is below an optimal
    multiplier, violation grows linearly. (It is above those of all environments here.)
    """
    n_layers, n_constraints = problem.action_mask.shape[0], problem.threshold.shape[0]
    one = np.ones_like(problem.episodes)
    cap = (n_layers + 1) / problem.slater_margin
    theory = Hyperparameters(
        **podb.hyperparameters(problem, "theory")._asdict(),
        reward_confidence=one,
        cost_confidence=one,
        dual_cap=cap,
        loss_scale=2 * n_constraints * cap,
        clip=0 * one,
        past_counts=0 * one,
    )
    if preset == "theory":
        return theory
    return podb.tuned(theory, problem)._replace(
        reward_confidence=2e-4 * one,
        cost_confidence=2e-4 * one,
        dual_cap=0.5 * theory.dual_cap,
        loss_scale=0.5 * theory.loss_scale,
    )


def reward_width(problem: Problem, hyper: Hyperparameters, visits: jax.Array) -> jax.Array:
    """phi of Lemma 1 for visits n >= 1, of their shape."""
    return hoeffding_width(visits, hyper.reward_confidence * podb.log_pairs(problem))


def cost_width(problem: Problem, hyper: Hyperparameters, visits: jax.Array) -> jax.Array:
    """xi of Lemma 2 for visits n >= 1, of their shape."""
    n_constraints = problem.threshold.shape[0]
    return hoeffding_width(visits, hyper.cost_confidence * (podb.log_pairs(problem) + float(np.log(n_constraints))))


def estimates_of(hyper: Hyperparameters, before: Estimates, after: Estimates) -> Estimates:
    """What multipliers and loss of an episode are made of: with the episode as printed, or without it."""
    return jax.tree.map(lambda old, new: jnp.where(hyper.past_counts > 0, old, new), before, after)


def init(problem: Problem, hyper: Hyperparameters) -> State:
    """Algorithm 2, lines 1 and 2: PO-DB's first policy; all estimators, counters and bounds at their start."""
    return State(estimates=empty(problem), primal=podb.start(problem))


def update(
    problem: Problem, hyper: Hyperparameters, state: State, policy: jax.Array, trajectory: Trajectory
) -> tuple[State, Info]:
    """Algorithm 2, lines 6 to 9, after `policy` [L,S,A,B] was played (line 4) and `trajectory` observed (line 5)."""
    return update_with(dual_max, problem, hyper, state, policy, trajectory)


def update_with(
    dual: Callable[[jax.Array, Array, Array], jax.Array],
    problem: Problem,
    hyper: Hyperparameters,
    state: State,
    policy: jax.Array,
    trajectory: Trajectory,
) -> tuple[State, Info]:
    """`update` with line 7 to choose: `dual` maps values and thresholds [M,B] and the cap [B] to multipliers [M,B]."""
    n_layers = policy.shape[0]

    if for_accelerator():
        return _update_in_few_kernels(dual, problem, hyper, state, policy, trajectory)

    # Line 6: build the estimators, episode t included
    late = hyper.past_counts > 0  # lanes that count it once multipliers and loss are made
    known = observe(state.estimates, without(trajectory, late))
    visits = jnp.maximum(known.visits, 1).astype(policy.dtype)
    per_visit = 1 / visits
    transition = (
        known.transitions.astype(policy.dtype) * per_visit[:-1, :, :, None]
    )  # P_hat: a pair never visited has a row of zeros
    cost_lower = known.payoff_sum[1:] * per_visit - cost_width(problem, hyper, visits)  # g_hat - xi
    cost_lower = jnp.where(hyper.clip > 0, jnp.clip(cost_lower, 0, 1), cost_lower)

    # Line 7: the dual max, a binary choice per constraint
    values = policy_value(transition, policy, cost_lower)[:, 0, 0]
    multipliers = dual(values, problem.threshold, hyper.dual_cap)

    # Line 8: the Lagrangian loss of the visited pairs
    n = at_pairs(trajectory.state, trajectory.action, visits)
    reward_mean = at_pairs(trajectory.state, trajectory.action, known.payoff_sum[0]) / n
    reward_upper = reward_mean + reward_width(problem, hyper, n)  # r_hat + phi
    reward_upper = jnp.where(hyper.clip > 0, jnp.clip(reward_upper, 0, 1), reward_upper)
    visited_cost = at_pairs(trajectory.state, trajectory.action, cost_lower)
    loss = lagrangian_loss(reward_upper, visited_cost, multipliers, problem.threshold, hyper.dual_cap, n_layers)

    # Line 9: PO-DB's update, which wants losses in [0, 1]. Deviation: loss-scale
    estimates, loss = observe_late(known, trajectory, late, loss)
    primal = podb.step(problem, hyper, state.primal, estimates, policy, trajectory, loss / hyper.loss_scale)
    return State(estimates, primal), Info(multipliers, primal.epochs)


def _update_in_few_kernels(
    dual: Callable[[jax.Array, Array, Array], jax.Array],
    problem: Problem,
    hyper: Hyperparameters,
    state: State,
    policy: jax.Array,
    trajectory: Trajectory,
) -> tuple[State, Info]:
    """`update_with` for an accelerator: all that is made of an array's old entries leaves one kernel with its new ones.

    (The old ones would be copied for a later reader.) So r_hat + phi and g_hat - xi are made of all pairs, together.
    """
    # Line 6, the counts first: visits, and PO-DB's of the epoch with them
    estimates = observe(state.estimates, trajectory)
    known = estimates_of(hyper, state.estimates, estimates)
    fresh = podb.begins_epoch(state.primal, state.estimates.visits, trajectory)
    at_epoch = jnp.where(fresh, estimates.visits, state.primal.visits_at_epoch)
    now, seen, at_epoch = together((estimates.visits, known.visits, at_epoch))
    visits = jnp.maximum(seen, 1).astype(policy.dtype)
    is_reward = (jnp.arange(len(known.payoff_sum)) == 0).reshape(-1, *(1,) * policy.ndim)
    width = jnp.where(is_reward, -reward_width(problem, hyper, visits), cost_width(problem, hyper, visits))
    bounds = known.payoff_sum * (1 / visits) - width
    bounds = jnp.where(hyper.clip > 0, jnp.clip(bounds, 0, 1), bounds)
    estimates, bounds, moved = together((estimates._replace(visits=now), bounds, known.transitions))

    # Lines 7 and 8: the dual max, the Lagrangian loss of the visited pairs
    transition = moved.astype(policy.dtype) * (1 / visits)[:-1, :, :, None]
    values = policy_value(transition, policy, bounds[1:])[:, 0, 0]
    multipliers = dual(values, problem.threshold, hyper.dual_cap)
    visited = at_pairs(trajectory.state, trajectory.action, bounds)
    loss = lagrangian_loss(visited[0], visited[1:], multipliers, problem.threshold, hyper.dual_cap, len(policy))

    # Line 9
    epoch = podb.Epoch(fresh, at_epoch)
    primal = podb.step(
        problem, hyper, state.primal, estimates, policy, trajectory, loss / hyper.loss_scale, epoch=epoch
    )
    return State(estimates, primal), Info(multipliers, primal.epochs)


LEARNER = base.register(
    Learner(
        name="cpdpo",
        hyperparameters=hyperparameters,
        init=init,
        policy=podb.policy,
        update=update,
        needs_slater=True,
        analysis=cpdpo_analysis.made_of(lambda *given: (reward_width(*given), cost_width(*given)), estimates_of),
    )
)
