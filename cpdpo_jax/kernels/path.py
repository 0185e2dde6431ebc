"""The path of an episode (Algorithm 1): states and actions sampled by inversion of uniforms."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels.lookup import at_index, at_pairs
from cpdpo_jax.kernels.loops import unrolled_sum
from cpdpo_jax.kernels.machines.forms import kernel
from cpdpo_jax.kernels.machines.sizes import MAX_UNROLLED_STATES


@kernel(sizes="policy")
def sample_path(
    policy: jax.Array, last_action: jax.Array, arrival: jax.Array, payoff: jax.Array, uniforms: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """States and actions [L,B] int32 of one episode, and the mean payoffs [1+M,L,B] at these pairs.

    The action is the first whose cumulative probability exceeds uniforms[:, 0]; the next state likewise with
    uniforms[:, 1]. policy [L,S,A,B]; last_action [L,S,A,B] bool, True from the last allowed action on; arrival
    [L-1,S,A,S,B], the cumulative transition function; payoff [1+M,L,S,A,B]; uniforms [L,2+,B]. The trailing axis of the
    model may be 1: one model for all lanes.
    """
    n_layers, n_states, n_actions = policy.shape[:3]
    cumulative = [policy[:, :, 0]]
    for a in range(1, n_actions):
        cumulative.append(cumulative[-1] + policy[:, :, a])
    cumulative = jnp.where(last_action, 2, jnp.stack(cumulative, axis=2))  # [L,S,A,B]
    lanes = uniforms.shape[2:]
    states = jnp.zeros((n_layers, *lanes), jnp.int32)
    actions = jnp.zeros((n_layers, *lanes), jnp.int32)
    for k in range(n_layers):
        passed = (at_index(states[k], cumulative[k]) <= uniforms[k, 0][None]).astype(jnp.int32)  # [A,B]
        actions = actions.at[k].set(unrolled_sum(n_actions, lambda a, passed=passed: passed[a]))
        if k + 1 == n_layers:
            break
        if n_states > MAX_UNROLLED_STATES:
            row = at_index(states[k] * n_actions + actions[k], arrival[k].reshape(-1, *arrival.shape[3:]))  # [S,B]
        else:
            row = at_index(actions[k], at_index(states[k], arrival[k]))
        passed = (row <= uniforms[k, 1][None]).astype(jnp.int32)
        states = states.at[k + 1].set(unrolled_sum(n_states, lambda y, passed=passed: passed[y]))
    return states, actions, at_pairs(states, actions, payoff)
