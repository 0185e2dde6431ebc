"""PO-DB, policy optimisation with dilated bonuses (Luo, Wei, Lee 2021, Algorithm 1; H = L).

The primal step of CPD-PO, and a learner of its own for unconstrained MDPs: losses in [0, 1] that may change with the
episode; here the loss is 1 - reward. Its regret is against the best fixed policy in hindsight. O(L^2 S^4 A) work per
episode, almost all of it in the occupancy bounds; sqrt(T) regret; it ignores every constraint.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common.types import Array, Trajectory
from cpdpo_jax.kernels import (
    Box,
    at_pairs,
    confidence_set,
    dilated_bonus_in_box,
    exploration_bonus,
    for_accelerator,
    make_box,
    occupancy_bounds_in_box,
    unrolled_reduce,
)
from cpdpo_jax.kernels.accelerator import together
from cpdpo_jax.kernels.cpu.in_place import changed_if, exponential, stored
from cpdpo_jax.learners import base
from cpdpo_jax.learners.base import Info, Learner, Problem
from cpdpo_jax.learners.estimates import Estimates, empty, observe, visited_pairs


class Hyperparameters(NamedTuple):
    """All [B], traced: sweeping them does not recompile."""

    learning_rate: Array  # eta
    exploration: Array  # gamma, the implicit exploration
    bonus_scale: Array  # multiplies b_t
    dilation: Array  # factor per step of the bonus recursion; 1 is no dilation
    transition_confidence: Array  # multiplies the logarithm in the transition widths


class Primal(NamedTuple):
    """PO-DB's own state."""

    log_weights: jax.Array  # [L,S,A,B] -eta sum (Q_hat - B), the largest allowed one of each state at 0
    box: Box  # the confidence set P_k of the epoch
    visits_at_epoch: jax.Array  # [L,S,A,B] int32
    epochs: jax.Array  # [B] int32


class Epoch(NamedTuple):
    """The epoch after an episode."""

    fresh: jax.Array  # [B] bool, a new one
    visits: jax.Array  # [L,S,A,B] int32, at its start


class State(NamedTuple):
    """PO-DB as a learner of its own."""

    estimates: Estimates
    primal: Primal


def log_pairs(problem: Problem) -> Any:
    """ln(T |X| |A| / delta), [B]."""
    inside = problem.episodes * problem.n_states * problem.n_actions / problem.delta
    return jnp.log(inside) if isinstance(inside, jax.Array) else np.log(inside)


def hyperparameters(problem: Problem, preset: str = "theory") -> Hyperparameters:
    """eta = min(1/(24 L^3), 1/sqrt(|X||A| L T)), gamma = 2 eta L, no multiplier ("theory"), or `tuned`.

    Deviation: podb-constants, as recalled from Luo, Wei, Lee (2021); each can be set.
    """
    n_layers = problem.action_mask.shape[0]
    one = np.ones_like(problem.episodes)
    eta = np.minimum(
        1 / (24 * n_layers**3), 1 / np.sqrt(problem.n_states * problem.n_actions * n_layers * problem.episodes)
    )
    theory = Hyperparameters(
        learning_rate=eta,
        exploration=2 * eta * n_layers,
        bonus_scale=one,
        dilation=one * (1 + 1 / n_layers),
        transition_confidence=one,
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
    return Primal(
        log_weights=jnp.zeros(visits.shape, problem.threshold.dtype),
        box=make_box(*confidence_set(visits[:-1], counts, real[1:], problem.threshold.dtype.type(1))),
        visits_at_epoch=visits,
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
    epoch: Epoch | None = None,
) -> Primal:
    """One update from the losses [L,B] of the visited pairs; `estimates` include the episode.

    epoch: on an accelerator, whether one begins, if the caller has made that already.
    """
    n_states, n_actions = policy.shape[1:3]
    low, up = occupancy_bounds_in_box(policy, primal.box)
    bonus = hyper.bonus_scale * exploration_bonus(policy, low, up, hyper.exploration)
    bonus = stored(bonus)  # made once, rounded once
    dilated = dilated_bonus_in_box(policy, bonus, primal.box, hyper.dilation)  # B_t
    to_go = jnp.flip(jnp.cumsum(jnp.flip(loss, 0), axis=0), 0)  # L_{t,h}, the loss from layer h on
    visited = visited_pairs(trajectory.state, trajectory.action, n_states, n_actions)
    q_hat = jnp.where(visited, to_go[:, None, None] / (policy * up[:, :, None] + hyper.exploration), 0)
    log_weights = primal.log_weights - hyper.learning_rate * (q_hat - dilated)
    log_weights, box = base.recentred(log_weights, problem.action_mask), primal.box
    if for_accelerator():  # the set is written in place when nobody reads the old one any more
        log_weights, box = together((log_weights, box))
    primal = primal._replace(log_weights=log_weights, box=box)
    return _next_epoch(problem, hyper, primal, estimates, trajectory, epoch)


def begins_epoch(primal: Primal, visits: jax.Array, trajectory: Trajectory) -> jax.Array:
    """Whether a pair of the trajectory doubles its count with it, [B]; `visits` are those before. Layer by layer."""

    def in_layer(k: int) -> jax.Array:
        one = jax.tree.map(lambda leaf: leaf[k : k + 1], (primal.visits_at_epoch, visits))
        at = Trajectory(trajectory.state[k : k + 1], trajectory.action[k : k + 1], trajectory.reward, trajectory.cost)
        return _doubled(primal._replace(visits_at_epoch=one[0]), at_pairs(at.state, at.action, one[1]) + 1, at)

    return unrolled_reduce(len(visits), in_layer, jnp.logical_or)


def _doubled(primal: Primal, now: jax.Array, trajectory: Trajectory) -> jax.Array:
    before = at_pairs(trajectory.state, trajectory.action, primal.visits_at_epoch)
    doubled = now >= jnp.maximum(1, 2 * before)  # [L,B]
    return unrolled_reduce(len(doubled), doubled.__getitem__, jnp.logical_or)


def _next_epoch(
    problem: Problem, hyper: Any, primal: Primal, estimates: Estimates, trajectory: Trajectory, epoch: Epoch | None
) -> Primal:
    """A new epoch where a visited pair has doubled its count; its set holds from the next episode on."""
    if epoch is None:
        fresh = _doubled(primal, at_pairs(trajectory.state, trajectory.action, estimates.visits), trajectory)
    else:
        fresh = epoch.fresh
    counts = estimates.visits, estimates.transitions
    reads = problem, hyper.transition_confidence, counts, fresh, epoch.visits if epoch else None
    if for_accelerator():  # its host would wait for the question, and copy the set for the answer
        return _renewed(primal, reads)
    rest = primal._replace(log_weights=None)  # which was made of the old set
    rest, log_weights = changed_if(fresh.any(), _renewed, rest, reads, primal.log_weights)
    return rest._replace(log_weights=log_weights)


def _renewed(primal: Primal, reads: Any) -> Primal:
    """The set of a new epoch where there is one."""
    problem, confidence, (visits, transitions), fresh, at_epoch = reads
    real = problem.action_mask.any(axis=2)
    box = make_box(*confidence_set(visits[:-1], transitions, real[1:], confidence * log_pairs(problem)))
    return primal._replace(
        box=jax.tree.map(lambda new, old: jnp.where(fresh, new, old), box, primal.box),
        visits_at_epoch=jnp.where(fresh, visits, primal.visits_at_epoch) if at_epoch is None else at_epoch,
        epochs=primal.epochs + fresh.astype(jnp.int32),
    )


def policy(problem: Problem, hyper: Any, state: Any) -> jax.Array:
    """pi_t(a|x) proportional to exp(-eta sum_{tau < t} (Q_hat - B)(x,a)), [L,S,A,B]."""
    return base.softmax_policy(state.primal.log_weights, problem.action_mask, exponential)


def init(problem: Problem, hyper: Hyperparameters) -> State:
    """Nothing seen."""
    return State(estimates=empty(problem), primal=start(problem))


def update(
    problem: Problem, hyper: Hyperparameters, state: State, policy: jax.Array, trajectory: Trajectory
) -> tuple[State, Info]:
    """PO-DB with the loss 1 - reward."""
    estimates = observe(state.estimates, trajectory)
    primal = step(problem, hyper, state.primal, estimates, policy, trajectory, 1 - trajectory.reward)
    return State(estimates, primal), Info(jnp.zeros_like(problem.threshold), primal.epochs)


LEARNER = base.register(Learner(name="podb", hyperparameters=hyperparameters, init=init, policy=policy, update=update))
