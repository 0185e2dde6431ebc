"""Counts and empirical means of what was visited (Section 4)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from cpdpo_jax.common.types import Trajectory
from cpdpo_jax.kernels import compensated_add
from cpdpo_jax.learners.base import Problem


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


def visited_pairs(trajectory: Trajectory, n_states: int, n_actions: int) -> jax.Array:
    """1{(x,a) visited}: [L,S,A,*B] bool."""
    batch = (1,) * (trajectory.state.ndim - 1)
    at_state = trajectory.state[:, None] == jnp.arange(n_states, dtype=jnp.int32).reshape(1, -1, *batch)
    at_action = trajectory.action[:, None] == jnp.arange(n_actions, dtype=jnp.int32).reshape(1, -1, *batch)
    return at_state[:, :, None] & at_action[:, None]


def observe(estimates: Estimates, trajectory: Trajectory) -> Estimates:
    """Count one episode."""
    n_states, n_actions = estimates.visits.shape[1:3]
    visited = visited_pairs(trajectory, n_states, n_actions)
    states = jnp.arange(n_states, dtype=jnp.int32).reshape(1, -1, *(1,) * (trajectory.state.ndim - 1))
    arrived = trajectory.state[1:, None] == states  # [L-1,S,*B]
    moved = visited[:-1, :, :, None] & arrived[:, None, None]
    payoff = jnp.concatenate([trajectory.reward[None], trajectory.cost])[:, :, None, None]  # [1+M,L,1,1,*B]
    sampled = jnp.where(visited, payoff, 0)
    total, carry = compensated_add(estimates.payoff_sum, estimates.payoff_carry, sampled)
    return Estimates(
        visits=estimates.visits + visited.astype(jnp.int32),
        transitions=estimates.transitions + moved.astype(jnp.int32),
        payoff_sum=total,
        payoff_carry=carry,
    )
