"""Triple-Q (Wei, Liu, Ying 2022): model-free, two tables of action values and a virtual queue per constraint.

What it does: acts greedily on Q + (Z/eta) C, where Q estimates rewards, C utilities (1 - cost) and Z is a queue that
grows while the utilities fall short; learns Q and C from the visited pairs alone, in frames. After each frame the queue
takes one step, Q is raised, and the tables are clipped to possible values. No model, no planning.
Cost per episode: O(L) for the update itself; here O((1+m) L S A), because exact metrics need the whole policy.
Guarantee: regret of order H^4 sqrt(SA) T^{0.8} / rho and no weak violation for large T (T above a multiple of
(S A H^6 iota^3)^{5/2} / rho^5). There is no bound on the strong metrics.
When to use it: instances too large for a table of transitions. Needs T.

    pi_t(x) = the first a within 1e-9 of the largest Q(x,a) + dual_rate sum_i Z_i C_i(x,a)
    on the visited pairs, n visits in this frame:  rate = (chi + 1)/(chi + n),  b = H sqrt(iota (chi + 1)/(chi + n)) / 4
        Q(x_k,a_k)   <- (1 - rate) Q(x_k,a_k) + rate (r_k + Q(x_{k+1},a_{k+1}) + b),   C_i likewise with 1 - g_{i,k}
    after a frame:  Z_i <- [Z_i + (H - alpha_i) + tightening - mean of C_i(x_0,a_0) over its episodes]_+
        Q <- Q + frame_bonus; where Q or a C_i is at least H-k, all are H-k; visit counts restart
    iota = 128 ln(sqrt(2 |X| |A| H) T),   chi = T^0.2,   dual_rate = T^-0.2,   frames of T^0.6 episodes
    tightening = 8 sqrt(|X| |A| H^6 iota^3) / T^0.2,   frame_bonus = 2 H^3 sqrt(iota) / T^0.2
Initially Q = C_i = H-k. `transition_confidence` multiplies iota in b alone. Reported multipliers are dual_rate Z.

Deviations: tables start at, and are truncated at, H-k instead of H; iota, and the rule at the end of a frame, are as in
the authors' program and recalled, not checked against the paper; several constraints have a table and a queue each.
For "tuned" see `hyperparameters`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from optax.projections import projection_non_negative

from cpdpo_jax.common.types import Array, Trajectory
from cpdpo_jax.kernels.counting import visited_pairs
from cpdpo_jax.kernels.lookup import at_pairs
from cpdpo_jax.kernels.loops import unrolled_reduce
from cpdpo_jax.kernels.tracing import materialise
from cpdpo_jax.learners import base, optimistic
from cpdpo_jax.learners.base import Info, Learner, Problem
from cpdpo_jax.learners.optimistic import greedy


class Hyperparameters(NamedTuple):
    """All [B], traced: sweeping them does not recompile."""

    learning_offset: Array  # chi
    dual_rate: Array  # 1 / eta, the weight of a queue in the choice of actions
    frame_length: Array  # episodes
    tightening: Array  # margin by which the utilities must exceed what is required
    frame_bonus: Array  # added to Q after a frame
    transition_confidence: Array  # multiplies iota in the bonus of an update


class State(NamedTuple):
    """State before episode t."""

    tables: jax.Array  # [1+M,L,S,A,B] Q, then C_i; 0 at padding
    visits: jax.Array  # [L,S,A,B] int32, in this frame
    queue: jax.Array  # [M,B] Z
    start_sum: jax.Array  # [M,B] C_i(x_0,a_0) summed over the episodes of this frame
    frame_step: jax.Array  # [B] int32, episodes of this frame


def log_term(problem: Problem) -> Any:
    """iota = 128 ln(sqrt(2 |X| |A| H) T), [B]."""
    pairs = 2 * problem.n_states * problem.n_actions * problem.action_mask.shape[0]
    log = jnp.log if isinstance(pairs, jax.Array) else np.log
    return 128 * (log(pairs) / 2 + log(problem.episodes))


def hyperparameters(problem: Problem, preset: str = "tuned") -> Hyperparameters:
    """The paper's constants ("theory"), or these rescaled by `experiments/tuning` ("tuned").

    The paper's tightening and frame_bonus exceed H for every feasible T, and the queues then only grow: "tuned"
    replaces them by separate values.
    """
    n_layers, iota, scale = problem.action_mask.shape[0], log_term(problem), problem.episodes**0.2
    ones = np.ones_like(problem.episodes)
    theory = Hyperparameters(
        learning_offset=scale,
        dual_rate=1 / scale,
        frame_length=np.maximum(1, np.round(problem.episodes**0.6)),
        tightening=8 * np.sqrt(problem.n_states * problem.n_actions * n_layers**6 * iota**3) / scale,
        frame_bonus=2 * n_layers**3 * np.sqrt(iota) / scale,
        transition_confidence=ones,
    )
    if preset == "theory":
        return theory
    return theory._replace(
        learning_offset=0.6 * theory.learning_offset,
        dual_rate=0.34 * theory.dual_rate,
        frame_length=np.maximum(1, np.round(0.34 * theory.frame_length)),
        tightening=0.022 * ones,
        frame_bonus=0.06 * ones,
        transition_confidence=1.6e-8 * ones,
    )


def largest_values(problem: Problem) -> jax.Array:
    """H-k at the allowed pairs, 0 at padding: [L,S,A,B]."""
    to_go = jnp.arange(problem.action_mask.shape[0], 0, -1, dtype=problem.threshold.dtype)
    return jnp.where(problem.action_mask, to_go.reshape(-1, *(1,) * (problem.action_mask.ndim - 1)), 0)


def learn(problem: Problem, hyper: Hyperparameters, state: State, trajectory: Trajectory) -> State:
    """One update of the visited pairs, and one more episode of the frame."""
    n_layers, n_states, n_actions = problem.action_mask.shape[:3]
    visited = visited_pairs(trajectory.state, trajectory.action, n_states, n_actions)
    old = at_pairs(trajectory.state, trajectory.action, state.tables)  # [1+M,L,B]
    n = 1 + at_pairs(trajectory.state, trajectory.action, state.visits)
    rate = (hyper.learning_offset + 1) / (hyper.learning_offset + n.astype(old.dtype))
    bonus = jnp.sqrt(hyper.transition_confidence * log_term(problem) * n_layers**2 * rate) / 4
    payoff = jnp.concatenate([trajectory.reward[None], 1 - trajectory.cost])
    ahead = jnp.concatenate([old[:, 1:], jnp.zeros_like(old[:, :1])], axis=1)
    # computed once, not for every pair of the tables
    new = materialise(old + rate * (payoff + ahead + bonus - old))
    return State(
        tables=jnp.where(visited, new[:, :, None, None], state.tables),
        visits=state.visits + visited.astype(jnp.int32),
        queue=state.queue,
        start_sum=state.start_sum + old[1:, 0],
        frame_step=state.frame_step + 1,
    )


def next_frame(problem: Problem, hyper: Hyperparameters, state: State) -> State:
    """End a frame: update the queues, raise and truncate the tables, reset the counts."""
    mean = state.start_sum / jnp.maximum(state.frame_step, 1).astype(state.queue.dtype)
    wanted = problem.action_mask.shape[0] - problem.threshold + hyper.tightening
    largest = largest_values(problem)
    raised = state.tables.at[0].add(hyper.frame_bonus)
    # padding too: 0 >= 0, and stays 0
    exceeds = unrolled_reduce(len(raised), lambda i: raised[i] >= largest, jnp.logical_or)
    return State(
        tables=jnp.where(exceeds, largest, raised),
        visits=jnp.zeros_like(state.visits),
        queue=projection_non_negative(state.queue + wanted - mean),
        start_sum=jnp.zeros_like(state.start_sum),
        frame_step=jnp.zeros_like(state.frame_step),
    )


def init(problem: Problem, hyper: Hyperparameters) -> State:
    """The largest possible values everywhere, empty queues."""
    largest = largest_values(problem)
    none = jnp.zeros_like(problem.threshold)
    return State(
        tables=jnp.broadcast_to(largest, (1 + len(none), *largest.shape)),
        visits=jnp.zeros(largest.shape, jnp.int32),
        queue=none,
        start_sum=none,
        frame_step=jnp.zeros(none.shape[1:], jnp.int32),
    )


def policy(problem: Problem, hyper: Hyperparameters, state: State) -> jax.Array:
    """pi_t, [L,S,A,B]."""
    scores = optimistic.lagrangian(state.tables, -hyper.dual_rate * state.queue)
    return greedy(scores, problem.action_mask, 2).astype(state.tables.dtype)


def update(
    problem: Problem, hyper: Hyperparameters, state: State, policy: jax.Array, trajectory: Trajectory
) -> tuple[State, Info]:
    """Update the visited pairs, and end each lane's frame if it is complete."""
    learnt = learn(problem, hyper, state, trajectory)
    over = learnt.frame_step.astype(hyper.frame_length.dtype) >= hyper.frame_length
    closed = next_frame(problem, hyper, learnt)
    after = jax.tree.map(lambda new, old: jnp.where(over, new, old), closed, learnt)
    return after, optimistic.info(hyper.dual_rate * state.queue)


LEARNER = base.register(
    Learner(name="triple_q", hyperparameters=hyperparameters, init=init, policy=policy, update=update)
)
