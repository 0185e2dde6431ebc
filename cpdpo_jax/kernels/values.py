"""Value functions by backward recursion: no occupancy measure anywhere (Section 3.1)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels.loops import backwards, batch_shape, fold


@jax.jit
def policy_value(transition: jax.Array, policy: jax.Array, payoff: jax.Array) -> jax.Array:
    """V^{pi,P}(x; v) = E[sum of v over the layers from x's on | x], K payoffs at once (Section 3.1).

    transition [L-1,S,A,S,*B], policy [L,S,A,*B], payoff [K,L,S,A,*B] -> [K,L,S,*B]; V(x_0) is [:, 0, 0].
    """
    n_layers, n_states = policy.shape[:2]
    batch = batch_shape(policy.ndim - 3, (transition, 4), (policy, 3), (payoff, 4))
    values = jnp.zeros((n_layers, payoff.shape[0], n_states, *batch), jnp.result_type(transition, policy, payoff))

    def step(k: Any, values: jax.Array) -> jax.Array:
        q = _one_step(transition[k], payoff[:, k], values[k + 1])
        return values.at[k].set(_average(policy[k], q))

    values = values.at[-1].set(_average(policy[-1], payoff[:, -1]))
    values = backwards(n_layers - 1, n_states, step, values)
    return jnp.moveaxis(values, 0, 1)


@jax.jit  # traced once for all layers
def _one_step(transition: jax.Array, payoff: jax.Array, ahead: jax.Array) -> jax.Array:
    """v(x,a) + sum_y P(y|x,a) V(y): [S,A,S,*B], [K,S,A,*B], [K,S,*B] -> [K,S,A,*B]."""
    return payoff + fold(ahead.shape[1], lambda y: transition[None, :, :, y] * ahead[:, None, None, y])


def _average(policy: jax.Array, q: jax.Array) -> jax.Array:
    """sum_a pi(a|x) q(x,a): [S,A,*B], [K,S,A,*B] -> [K,S,*B]."""
    return fold(policy.shape[1], lambda a: policy[None, :, a] * q[:, :, a])


@jax.jit
def action_value(transition: jax.Array, policy: jax.Array, payoff: jax.Array) -> jax.Array:
    """Q^{pi,P}(x,a; v) = v(x,a) + sum_y P(y|x,a) V^{pi,P}(y; v), K payoffs at once.

    transition [L-1,S,A,S,*B], policy [L,S,A,*B], payoff [K,L,S,A,*B] -> [K,L,S,A,*B].
    """
    values = policy_value(transition, policy, payoff)
    ahead = fold(policy.shape[1], lambda y: transition[None, :, :, :, y] * values[:, 1:, None, None, y])
    last = jnp.broadcast_to(payoff[:, -1:], (*payoff[:, -1:].shape[:4], *values.shape[3:]))
    return jnp.concatenate([payoff[:, :-1] + ahead, last], axis=1)
