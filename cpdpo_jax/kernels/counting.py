"""Counts of an episode's visits: N(x,a), M(x,a,x') and the sums of sampled payoffs (Section 4)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels.lookup import at_pairs
from cpdpo_jax.kernels.machines.forms import kernel
from cpdpo_jax.kernels.sums import compensated_add


def visited_pairs(state: jax.Array, action: jax.Array, n_states: int, n_actions: int) -> jax.Array:
    """1{(x,a) visited}: state and action [L,*B] -> [L,S,A,*B] bool."""
    batch = (1,) * (state.ndim - 1)
    at_state = state[:, None] == jnp.arange(n_states, dtype=jnp.int32).reshape(1, -1, *batch)
    at_action = action[:, None] == jnp.arange(n_actions, dtype=jnp.int32).reshape(1, -1, *batch)
    return at_state[:, :, None] & at_action[:, None]


@kernel(sizes="visits")
def count_episode(
    state: jax.Array,
    action: jax.Array,
    payoff: jax.Array,
    visits: jax.Array,
    transitions: jax.Array,
    payoff_sum: jax.Array,
    payoff_carry: jax.Array | None,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array | None]:
    """The counts and sums after one more episode.

    state and action [L,*B], payoff [1+M,L,*B]; visits [L,S,A,*B] and transitions [L-1,S,A,S,*B] int32; payoff_sum and
    payoff_carry [1+M,L,S,A,*B]. The carry is the rounding error of the sums (Kahan); None for payoffs of 0 and 1, whose
    sums are exact.
    """
    n_states, n_actions = visits.shape[1:3]
    visited = visited_pairs(state, action, n_states, n_actions)
    states = jnp.arange(n_states, dtype=jnp.int32).reshape(1, -1, *(1,) * (state.ndim - 1))
    arrived = state[1:, None] == states  # [L-1,S,*B]
    moved = visited[:-1, :, :, None] & arrived[:, None, None]
    sampled = jnp.where(visited[None], payoff[:, :, None, None], 0)
    counts = visits + visited.astype(jnp.int32), transitions + moved.astype(jnp.int32)
    if payoff_carry is None:
        return *counts, payoff_sum + sampled, None
    return *counts, *compensated_add(payoff_sum, payoff_carry, sampled)


@kernel(sizes="transitions", axes=4)
def visited_rows(state: jax.Array, action: jax.Array, transitions: jax.Array) -> jax.Array:
    """M(x_k,a_k,.) at the visited pairs: state and action [L,*B], transitions [L-1,S,A,S,*B] -> [L-1,S,*B] int32."""
    rows = at_pairs(state[:-1], action[:-1], jnp.moveaxis(transitions, 3, 0))  # [S,L-1,*B]
    return jnp.moveaxis(rows, 0, 1)
