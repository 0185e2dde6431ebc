"""CPD-PO with a gradient step in place of the dual's binary choice: everything else is Algorithm 2.

    CPD-PO, line 7   lambda_t = argmax over {0, cap} of lambda (V(g_hat - xi) - alpha): all or nothing, without memory
    here             lambda_t = clip(lambda_{t-1} + rate (V(g_hat - xi) - alpha), 0, cap),   lambda_0 = 0

rate = cap / (L sqrt(m T)), the step of OptPrimalDual-CMDP, so that the two methods differ in their primal step alone;
it is the preset's, "x10" ten times that. With a huge rate the step is CPD-PO's choice again. No guarantee is known.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common.types import Array, Trajectory
from cpdpo_jax.learners import Info, Learner, Problem, cpdpo, podb


class Hyperparameters(NamedTuple):
    """CPD-PO's, in its order, and the dual's step."""

    learning_rate: Array
    exploration: Array
    bonus_scale: Array
    dilation: Array
    transition_confidence: Array
    reward_confidence: Array
    cost_confidence: Array
    dual_cap: Array
    loss_scale: Array
    clip: Array
    dual_rate: Array


class State(NamedTuple):
    """CPD-PO's, and the multipliers it would not need to remember."""

    same: cpdpo.State
    multipliers: jax.Array  # [M,B] lambda_{t-1}


def hyperparameters(problem: Problem, preset: str = "tuned") -> Hyperparameters:
    """CPD-PO's of the preset."""
    same = cpdpo.hyperparameters(problem, preset)
    n_layers, n_constraints = problem.action_mask.shape[0], problem.threshold.shape[0]
    return Hyperparameters(*same, same.dual_cap / (n_layers * np.sqrt(n_constraints * problem.episodes)))


def init(problem: Problem, hyper: Any) -> State:
    """As CPD-PO, lambda_0 = 0."""
    return State(cpdpo.init(problem, hyper), jnp.zeros_like(problem.threshold))


def update(problem: Problem, hyper: Any, state: State, policy: jax.Array, trajectory: Trajectory) -> tuple[State, Info]:
    """Algorithm 2, lines 6 to 9, with another line 7."""

    def step(values: jax.Array, threshold: Array, cap: Array) -> jax.Array:
        return jnp.clip(state.multipliers + hyper.dual_rate * (values - threshold), 0, cap)

    same, info = cpdpo.update_with(step, problem, hyper, state.same, policy, trajectory)
    return State(same, info.multipliers), info


def played(problem: Problem, hyper: Any, state: State) -> jax.Array:
    """PO-DB's policy."""
    return podb.policy(problem, hyper, state.same)


GRADIENT = Learner(
    name="cpdpo_gradient",
    hyperparameters=hyperparameters,
    init=init,
    policy=played,
    update=update,
    needs_slater=True,
)
