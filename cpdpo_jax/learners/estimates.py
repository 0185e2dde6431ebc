"""Counts and empirical means of what was visited (Section 4)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cpdpo_jax.common.types import Trajectory
from cpdpo_jax.kernels import at_pairs, compensated_add, for_accelerator, replaced_by
from cpdpo_jax.kernels.accelerator import together
from cpdpo_jax.kernels.cpu.in_place import changed, changed_if
from cpdpo_jax.kernels.loops import MAX_UNROLLED_STATES
from cpdpo_jax.learners.base import Problem

_TRACED = threading.local()


class Estimates(NamedTuple):
    """Counters N and M and sums of samples. Counts are integers: float32 stops counting at 2^24."""

    visits: jax.Array  # [L,S,A,B] int32, N(x,a)
    transitions: jax.Array  # [L-1,S,A,S,B] int32, M(x,a,x')
    payoff_sum: jax.Array  # [1+M,L,S,A,B] sampled rewards, then costs, summed
    payoff_carry: jax.Array  # [1+M,L,S,A,B] what the sums lost to rounding (Kahan): exact enough at 10^8 samples


def empty(problem: Problem) -> Estimates:
    """Nothing visited yet."""
    shape = problem.action_mask.shape
    n_layers, n_states, n_actions, *batch = shape
    payoff = jnp.zeros((1 + problem.threshold.shape[0], *shape), problem.threshold.dtype)
    return Estimates(
        visits=jnp.zeros(shape, jnp.int32),
        transitions=jnp.zeros((n_layers - 1, n_states, n_actions, n_states, *batch), jnp.int32),
        payoff_sum=payoff,
        payoff_carry=payoff,
    )


@contextmanager
def whole_payoffs(trajectory: Trajectory | None) -> Iterator[None]:
    """While tracing: all payoffs of this trajectory are 0 or 1, and no pair is visited more than 2^24 times.

    Its sums lose nothing then and Kahan's carry stays 0: `observe` neither reads nor writes it, which saves a fifth of
    the memory that an episode moves. Payoffs that a learner has made of them, or any others, are added with care.
    """
    before, _TRACED.whole = getattr(_TRACED, "whole", None), trajectory
    try:
        yield
    finally:
        _TRACED.whole = before


def _is_whole(trajectory: Trajectory) -> bool:
    known = getattr(_TRACED, "whole", None)
    return known is not None and trajectory.reward is known.reward and trajectory.cost is known.cost


def visited_pairs(state: jax.Array, action: jax.Array, n_states: int, n_actions: int) -> jax.Array:
    """1{(x,a) visited}: state and action [L,*B] -> [L,S,A,*B] bool."""
    batch = (1,) * (state.ndim - 1)
    at_state = state[:, None] == jnp.arange(n_states, dtype=jnp.int32).reshape(1, -1, *batch)
    at_action = action[:, None] == jnp.arange(n_actions, dtype=jnp.int32).reshape(1, -1, *batch)
    return at_state[:, :, None] & at_action[:, None]


def observe(estimates: Estimates, trajectory: Trajectory) -> Estimates:
    """Count one episode; a lane whose states are -1 counts nothing."""
    payoff = jnp.concatenate([trajectory.reward[None], trajectory.cost])  # [1+M,L,*B]
    whole = _is_whole(trajectory)
    pure, name = _PURE[whole], "observe_whole" if whole else "observe"
    call = replaced_by(name, pure, estimates.visits.shape[1], payoff.shape[2:], payoff.dtype)
    seen = trajectory.state, trajectory.action, payoff
    if call is not pure:
        return Estimates(*call(*seen, *estimates))
    return changed(lambda counts, seen: Estimates(*pure(*seen, *counts)), estimates, seen)


def without(trajectory: Trajectory, lanes: jax.Array) -> Trajectory:
    """The trajectory as `observe` counts it for all but `lanes` [*B] bool."""
    return trajectory._replace(state=jnp.where(lanes, -1, trajectory.state))


def observe_late(estimates: Estimates, trajectory: Trajectory, lanes: jax.Array, made: Any) -> tuple[Estimates, Any]:
    """Count the episode for `lanes` that were left out, and `made`, arrays made of the estimates so far."""
    return changed_if(lanes.any(), _observe_late, estimates, (trajectory, lanes), made)


def _observe_late(estimates: Estimates, reads: tuple[Trajectory, jax.Array]) -> Estimates:
    trajectory, lanes = reads
    payoff = jnp.concatenate([trajectory.reward[None], trajectory.cost])
    after = Estimates(*_observe(False, trajectory.state, trajectory.action, payoff, *estimates))
    return jax.tree.map(lambda new, old: jnp.where(lanes, new, old), after, estimates)


def _observe(
    whole: bool,
    state: jax.Array,
    action: jax.Array,
    payoff: jax.Array,
    visits: jax.Array,
    transitions: jax.Array,
    payoff_sum: jax.Array,
    payoff_carry: jax.Array,
) -> tuple[jax.Array, ...]:
    n_states, n_actions = visits.shape[1:3]
    visited = visited_pairs(state, action, n_states, n_actions)
    states = jnp.arange(n_states, dtype=jnp.int32).reshape(1, -1, *(1,) * (state.ndim - 1))
    arrived = state[1:, None] == states  # [L-1,S,*B]
    moved = visited[:-1, :, :, None] & arrived[:, None, None]
    sampled = jnp.where(visited, payoff[:, :, None, None], 0)
    if for_accelerator() and n_states > MAX_UNROLLED_STATES:  # sums and what they lost are one kernel then: no copy
        sampled = together(sampled)
    sums = (payoff_sum + sampled, payoff_carry) if whole else compensated_add(payoff_sum, payoff_carry, sampled)
    return visits + visited.astype(jnp.int32), transitions + moved.astype(jnp.int32), *sums


_PURE = {whole: partial(_observe, whole) for whole in (False, True)}  # made once: `replaced_by` remembers them


def visited_rows(estimates: Estimates, trajectory: Trajectory) -> jax.Array:
    """M(x_k,a_k,.) of the pairs that an episode visited: [L-1,S,*B] int32."""
    call = replaced_by(
        "visited_rows", _visited_rows, estimates.visits.shape[1], trajectory.state.shape[1:], estimates.payoff_sum.dtype
    )
    return call(trajectory.state, trajectory.action, estimates.transitions)[0]


def _visited_rows(state: jax.Array, action: jax.Array, transitions: jax.Array) -> tuple[jax.Array]:
    rows = at_pairs(state[:-1], action[:-1], jnp.moveaxis(transitions, 3, 0))  # [S,L-1,*B]
    return (jnp.moveaxis(rows, 0, 1),)
