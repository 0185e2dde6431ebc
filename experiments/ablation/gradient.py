"""CPD-OPPO with a gradient step in place of the dual's binary choice: everything else is the same algorithm.

    CPD-OPPO, step 2   lambda_t = argmax over {0, cap} of lambda (V^g_t - alpha): all or nothing, without memory
    here               lambda_t = clip(lambda_{t-1} + rate (V^g_t - alpha), 0, cap),   lambda_0 = 0

The preset's rate is cap / (L sqrt(m T)), the step of OptPrimalDual-CMDP with this cap; "x10" is ten times that. With a
very large rate the step equals CPD-OPPO's choice. No guarantee for the strong metrics is known.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common.types import Array, Trajectory
from cpdpo_jax.learners import Info, Learner, Problem, cpd_oppo


class Hyperparameters(NamedTuple):
    """CPD-OPPO's hyperparameters in the same order, then the dual step."""

    policy_rate: Array
    dual_cap: Array
    transition_confidence: Array
    payoff_confidence: Array
    anytime: Array
    adaptive_rate: Array
    dual_rate: Array


class State(NamedTuple):
    """CPD-OPPO's state plus the multipliers."""

    same: cpd_oppo.State
    multipliers: jax.Array  # [M,B] lambda_{t-1}


def hyperparameters(problem: Problem, preset: str = "tuned") -> Hyperparameters:
    """CPD-OPPO's values for the preset."""
    same = cpd_oppo.hyperparameters(problem, preset)
    n_layers, n_constraints = problem.action_mask.shape[0], problem.threshold.shape[0]
    return Hyperparameters(*same, same.dual_cap / (n_layers * np.sqrt(n_constraints * problem.episodes)))


def init(problem: Problem, hyper: Any) -> State:
    """As CPD-OPPO, lambda_0 = 0."""
    return State(cpd_oppo.init(problem, hyper), jnp.zeros_like(problem.threshold))


def update(problem: Problem, hyper: Any, state: State, policy: jax.Array, trajectory: Trajectory) -> tuple[State, Info]:
    """CPD-OPPO's update with a different step 2."""

    def step(values: jax.Array, threshold: Array, cap: Array) -> jax.Array:
        return jnp.clip(state.multipliers + hyper.dual_rate * (values - threshold), 0, cap)

    same, info = cpd_oppo.update(problem, hyper, state.same, policy, trajectory, dual=step)
    return State(same, info.multipliers), info


def played(problem: Problem, hyper: Any, state: State) -> jax.Array:
    """Exponential weights."""
    return cpd_oppo.policy(problem, hyper, state.same)


GRADIENT = Learner(
    name="cpd_oppo_gradient",
    hyperparameters=hyperparameters,
    init=init,
    policy=played,
    update=update,
    needs_slater=True,
)
