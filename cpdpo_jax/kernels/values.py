"""Value functions by backward recursion: no occupancy measure anywhere (Section 3.1)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels import accelerator
from cpdpo_jax.kernels.loops import layer, scan_layers_backwards, unrolled_sum, with_layer
from cpdpo_jax.kernels.shapes import batch_shape
from cpdpo_jax.kernels.target import unrolls_states


@jax.jit
def policy_value(transition: jax.Array, policy: jax.Array, payoff: jax.Array) -> jax.Array:
    """V^{pi,P}(x; v) = E[sum of v over the layers from x's on | x], K payoffs at once (Section 3.1).

    transition [L-1,S,A,S,*B], policy [L,S,A,*B], payoff [K,L,S,A,*B] -> [K,L,S,*B]; V(x_0) is [:, 0, 0].
    """
    n_layers, n_states, n_actions = policy.shape[:3]
    batch = batch_shape(
        policy.ndim - 3,
        transition=(transition, (n_layers - 1, n_states, n_actions, n_states)),
        policy=(policy, (n_layers, n_states, n_actions)),
        payoff=(payoff, (None, n_layers, n_states, n_actions)),
    )
    if unrolls_states(n_states):
        return accelerator.values(transition, policy, payoff, batch)
    values = jnp.zeros((n_layers, payoff.shape[0], n_states, *batch), jnp.result_type(transition, policy, payoff))

    def step(k: jax.Array, values: jax.Array) -> jax.Array:
        q = _one_step(layer(transition, k), layer(payoff, k, axis=1), layer(values, k + 1))
        return with_layer(values, k, _average(layer(policy, k), q))

    values = with_layer(values, n_layers - 1, _average(policy[-1], payoff[:, -1]))
    values = scan_layers_backwards(n_layers - 1, n_states, step, values)
    return jnp.moveaxis(values, 0, 1)


def _one_step(transition: jax.Array, payoff: jax.Array, ahead: jax.Array) -> jax.Array:
    """v(x,a) + sum_y P(y|x,a) V(y): [S,A,S,*B], [K,S,A,*B], [K,S,*B] -> [K,S,A,*B]."""
    return payoff + unrolled_sum(ahead.shape[1], lambda y: transition[None, :, :, y] * ahead[:, None, None, y])


def _average(policy: jax.Array, q: jax.Array) -> jax.Array:
    """sum_a pi(a|x) q(x,a): [S,A,*B], [K,S,A,*B] -> [K,S,*B]."""
    return unrolled_sum(policy.shape[1], lambda a: policy[None, :, a] * q[:, :, a])


@jax.jit
def action_value(transition: jax.Array, policy: jax.Array, payoff: jax.Array) -> jax.Array:
    """Q^{pi,P}(x,a; v) = v(x,a) + sum_y P(y|x,a) V^{pi,P}(y; v), K payoffs at once.

    transition [L-1,S,A,S,*B], policy [L,S,A,*B], payoff [K,L,S,A,*B] -> [K,L,S,A,*B].
    """
    values = policy_value(transition, policy, payoff)
    ahead = unrolled_sum(policy.shape[1], lambda y: transition[None, :, :, :, y] * values[:, 1:, None, None, y])
    last = jnp.broadcast_to(payoff[:, -1:], (*payoff[:, -1:].shape[:4], *values.shape[3:]))
    return jnp.concatenate([payoff[:, :-1] + ahead, last], axis=1)
