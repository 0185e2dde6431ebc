"""CPD-PO with a gradient step in place of the dual's binary choice: everything else is Algorithm 2.

    CPD-PO, line 7   lambda_t = argmax over {0, cap} of lambda (V(g_hat - xi) - alpha): all or nothing, without memory
    here             lambda_t = clip(lambda_{t-1} + rate (V(g_hat - xi) - alpha), 0, cap),   lambda_0 = 0

rate = cap / (L sqrt(m T)), the step of OptPrimalDual-CMDP, so that the two methods differ in their primal step alone;
it is the preset's, "x10" ten times that. With a huge rate the step is CPD-PO's choice again. No guarantee is known.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.kernels import hoeffding_width, lagrangian_loss, policy_value
from cpdpo_jax.learners import Info, Learner, Problem, cpdpo, podb
from cpdpo_jax.learners.estimates import Estimates, empty, observe
from cpdpo_jax.rollout import at_pairs
from cpdpo_jax.types import Array, Trajectory


class Hyperparameters(NamedTuple):
    """CPD-PO's (without `clip`), and the dual's step."""

    learning_rate: Array
    exploration: Array
    bonus_scale: Array
    dilation: Array
    transition_confidence: Array
    reward_confidence: Array
    cost_confidence: Array
    dual_cap: Array
    loss_scale: Array
    dual_rate: Array


class State(NamedTuple):
    """CPD-PO's, and the multipliers it would not need to remember."""

    estimates: Estimates
    primal: podb.Primal
    multipliers: jax.Array  # [M,B] lambda_{t-1}


def hyperparameters(problem: Problem, preset: str = "tuned") -> Hyperparameters:
    """CPD-PO's of the preset."""
    same = cpdpo.hyperparameters(problem, preset)._asdict()
    n_layers, n_constraints = problem.action_mask.shape[0], problem.threshold.shape[0]
    rate = same["dual_cap"] / (n_layers * np.sqrt(n_constraints * problem.episodes))
    del same["clip"]
    return Hyperparameters(**same, dual_rate=rate)


def init(problem: Problem, hyper: Hyperparameters) -> State:
    """As CPD-PO, lambda_0 = 0."""
    return State(empty(problem), podb.start(problem), jnp.zeros_like(problem.threshold))


def update(
    problem: Problem, hyper: Hyperparameters, state: State, policy: jax.Array, trajectory: Trajectory
) -> tuple[State, Info]:
    """Algorithm 2, lines 6 to 9, with another line 7."""
    n_layers, n_constraints = policy.shape[0], problem.threshold.shape[0]
    estimates = observe(state.estimates, trajectory)
    log_reward = hyper.reward_confidence * podb.log_pairs(problem)
    log_cost = hyper.cost_confidence * (podb.log_pairs(problem) + np.log(n_constraints))
    visits = jnp.maximum(estimates.visits, 1).astype(policy.dtype)
    transition = estimates.transitions / visits[:-1, :, :, None]
    cost_lower = estimates.payoff_sum[1:] / visits - hoeffding_width(visits, log_cost)

    gradient = policy_value(transition, policy, cost_lower)[:, 0, 0] - problem.threshold
    multipliers = jnp.clip(state.multipliers + hyper.dual_rate * gradient, 0, hyper.dual_cap)

    at = trajectory.state, trajectory.action
    n = at_pairs(*at, visits)
    reward_upper = at_pairs(*at, estimates.payoff_sum[0]) / n + hoeffding_width(n, log_reward)
    loss = lagrangian_loss(
        reward_upper, at_pairs(*at, cost_lower), multipliers, problem.threshold, hyper.dual_cap, n_layers
    )
    primal = podb.step(problem, hyper, state.primal, estimates, policy, trajectory, loss / hyper.loss_scale)
    return State(estimates, primal, multipliers), Info(multipliers, primal.epochs)


GRADIENT = Learner(
    name="cpdpo_gradient",
    hyperparameters=hyperparameters,
    init=init,
    policy=podb.policy,
    update=update,
    needs_slater=True,
)
