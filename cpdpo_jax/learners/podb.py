"""PO-DB, policy optimisation with dilated bonuses (Luo, Wei, Lee 2021, Algorithm 1; H = L).

The primal step of CPD-PO, also available as a learner for unconstrained MDPs. Losses in [0, 1] may change with the
episode; here the loss is 1 - reward. Regret is of order sqrt(T) against the best fixed policy in hindsight; constraints
are ignored. O(L^2 S^4 A) work per episode, almost all of it in the occupancy bounds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common.types import Array, Trajectory
from cpdpo_jax.kernels import (
    Epoch,
    confidence_set,
    dilated_bonus,
    exploration_bonus,
    occupancy_bounds,
    recentred,
    renew_epoch,
    softmax_policy,
)
from cpdpo_jax.kernels.counting import visited_pairs
from cpdpo_jax.kernels.lookup import at_pairs
from cpdpo_jax.kernels.loops import unrolled_reduce
from cpdpo_jax.kernels.tracing import materialise
from cpdpo_jax.learners import base
from cpdpo_jax.learners.base import Info, Learner, Problem
from cpdpo_jax.learners.estimates import Estimates, empty, observe


class Hyperparameters(NamedTuple):
    """All [B], traced: sweeping them does not recompile."""

    learning_rate: Array  # eta
    exploration: Array  # gamma, the implicit exploration
    bonus_scale: Array  # multiplies b_t
    dilation: Array  # factor per step of the bonus recursion; 1 is no dilation
    transition_confidence: Array  # multiplies the logarithm in the transition widths


class Primal(NamedTuple):
    """State of the PO-DB step."""

    log_weights: (
        jax.Array
    )  # [L,S,A,B] -eta sum (Q_hat - B), shifted so that each state's maximum over allowed actions is 0
    epoch: Epoch  # k, with the confidence set P_k
    epochs: jax.Array  # [B] int32, epochs so far


class State(NamedTuple):
    """State of PO-DB as a learner."""

    estimates: Estimates
    primal: Primal


def log_pairs(problem: Problem) -> Any:
    """ln(T |X| |A| / delta), [B]."""
    inside = problem.episodes * problem.n_states * problem.n_actions / problem.delta
    return jnp.log(inside) if isinstance(inside, jax.Array) else np.log(inside)


def hyperparameters(problem: Problem, preset: str = "theory") -> Hyperparameters:
    """eta = min(1/(24 L^3), 1/sqrt(|X||A| L T)), gamma = 2 eta L, no multiplier ("theory"), or `tuned`.

    Deviation: podb-constants, as recalled from Luo, Wei, Lee (2021); all can be changed.
    """
    n_layers = problem.action_mask.shape[0]
    ones = np.ones_like(problem.episodes)
    eta = np.minimum(
        1 / (24 * n_layers**3), 1 / np.sqrt(problem.n_states * problem.n_actions * n_layers * problem.episodes)
    )
    theory = Hyperparameters(
        learning_rate=eta,
        exploration=2 * eta * n_layers,
        bonus_scale=ones,
        dilation=ones * (1 + 1 / n_layers),
        transition_confidence=ones,
    )
    return theory if preset == "theory" else tuned(theory, problem)


def tuned(theory: Any, problem: Problem) -> Any:
    """The multipliers of the "tuned" preset, chosen by `experiments/tuning`. Deviation: tuned."""
    return theory._replace(
        learning_rate=10 * theory.learning_rate,
        exploration=0.05 / np.sqrt(problem.episodes),
        bonus_scale=0.003 * theory.bonus_scale,
        transition_confidence=2e-4 * theory.transition_confidence,
    )


def start(problem: Problem) -> Primal:
    """The uniform policy, and all transition functions on real states as the confidence set."""
    visits = jnp.zeros(problem.action_mask.shape, jnp.int32)
    real = problem.action_mask.any(axis=2)
    counts = jnp.zeros((*visits[:-1].shape[:3], visits.shape[1], *visits.shape[3:]), jnp.int32)
    everything = confidence_set(visits[:-1], counts, real[1:], problem.threshold.dtype.type(1))
    return Primal(
        log_weights=jnp.zeros(visits.shape, problem.threshold.dtype),
        epoch=Epoch(*everything, visits),
        epochs=jnp.ones(visits.shape[3:], jnp.int32),
    )


def step(
    problem: Problem,
    hyper: Any,
    primal: Primal,
    estimates: Estimates,
    policy: jax.Array,
    trajectory: Trajectory,
    loss: jax.Array,
) -> Primal:
    """One update from the losses [L,B] of the visited pairs; `estimates` include the episode."""
    n_states, n_actions = policy.shape[1:3]
    lower, upper = primal.epoch.lower, primal.epoch.upper
    low, up = occupancy_bounds(policy, lower, upper)  # q_low and q_up without pi(a|x)
    bonus = materialise(hyper.bonus_scale * exploration_bonus(policy, low, up, hyper.exploration))  # b_t
    dilated = dilated_bonus(policy, bonus, lower, upper, hyper.dilation)  # B_t
    to_go = jnp.flip(jnp.cumsum(jnp.flip(loss, 0), axis=0), 0)  # L_{t,h}, the loss from layer h on
    visited = visited_pairs(trajectory.state, trajectory.action, n_states, n_actions)
    q_hat = jnp.where(visited, to_go[:, None, None] / (policy * up[:, :, None] + hyper.exploration), 0)
    log_weights = recentred(primal.log_weights - hyper.learning_rate * (q_hat - dilated), problem.action_mask)

    # A new epoch begins when the count of a visited pair has doubled; its set applies from the next episode
    fresh = _has_doubled(primal.epoch.visits, estimates.visits, trajectory)
    log_weights, epoch = materialise((log_weights, primal.epoch))  # the old set is not read below
    real, log = problem.action_mask.any(axis=2), hyper.transition_confidence * log_pairs(problem)
    epoch = renew_epoch(fresh, epoch, estimates.visits, estimates.transitions, real[1:], log)
    return Primal(log_weights, epoch, primal.epochs + fresh.astype(jnp.int32))


def _has_doubled(at_epoch: jax.Array, visits: jax.Array, trajectory: Trajectory) -> jax.Array:
    """Whether some visited pair has N >= max(1, 2 N at the start of the epoch); visits [L,S,A,B] -> [B]."""
    before, now = (at_pairs(trajectory.state, trajectory.action, counts) for counts in (at_epoch, visits))
    doubled = now >= jnp.maximum(1, 2 * before)  # [L,B]
    return unrolled_reduce(len(doubled), doubled.__getitem__, jnp.logical_or)


def policy(problem: Problem, hyper: Any, state: Any) -> jax.Array:
    """pi_t(a|x) proportional to exp(-eta sum_{tau < t} (Q_hat - B)(x,a)), [L,S,A,B]."""
    return softmax_policy(state.primal.log_weights, problem.action_mask)


def init(problem: Problem, hyper: Hyperparameters) -> State:
    """State before the first episode."""
    return State(estimates=empty(problem, as_sampled=True), primal=start(problem))


def update(
    problem: Problem, hyper: Hyperparameters, state: State, policy: jax.Array, trajectory: Trajectory
) -> tuple[State, Info]:
    """PO-DB with the loss 1 - reward."""
    estimates = observe(state.estimates, trajectory)
    primal = step(problem, hyper, state.primal, estimates, policy, trajectory, 1 - trajectory.reward)
    return State(estimates, primal), Info(jnp.zeros_like(problem.threshold), primal.epochs)


LEARNER = base.register(Learner(name="podb", hyperparameters=hyperparameters, init=init, policy=policy, update=update))
