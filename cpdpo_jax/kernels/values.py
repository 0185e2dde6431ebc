"""Value functions by backward recursion: no occupancy measure anywhere (Section 3.1)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels._loops import batch_shape, fold


@jax.jit
def policy_value(transition: jax.Array, policy: jax.Array, payoff: jax.Array) -> jax.Array:
    """V^{pi,P}(x; v) = E[sum of v over the layers from x's on | x], K payoffs at once (Section 3.1).

    transition [L-1,S,A,S,*B], policy [L,S,A,*B], payoff [K,L,S,A,*B] -> [K,L,S,*B]; V(x_0) is [:, 0, 0].
    """
    n_layers, n_states, n_actions = policy.shape[:3]
    batch = batch_shape(policy.ndim - 3, (transition, 4), (policy, 3), (payoff, 4))
    values = jnp.zeros((n_layers, payoff.shape[0], n_states, *batch), jnp.result_type(transition, policy, payoff))
    for k in reversed(range(n_layers)):
        q = payoff[:, k]  # [K,S,A,*B]
        if k < n_layers - 1:
            ahead = values[k + 1]
            q = q + fold(n_states, lambda y, k=k, of=ahead: transition[k, None, :, :, y] * of[:, None, None, y])
        values = values.at[k].set(fold(n_actions, lambda a, k=k, q=q: policy[k, None, :, a] * q[:, :, a]))
    return jnp.moveaxis(values, 0, 1)


@jax.jit
def action_value(transition: jax.Array, policy: jax.Array, payoff: jax.Array) -> jax.Array:
    """Q^{pi,P}(x,a; v) = v(x,a) + sum_y P(y|x,a) V^{pi,P}(y; v), K payoffs at once.

    transition [L-1,S,A,S,*B], policy [L,S,A,*B], payoff [K,L,S,A,*B] -> [K,L,S,A,*B].
    """
    values = policy_value(transition, policy, payoff)
    ahead = fold(policy.shape[1], lambda y: transition[None, :, :, :, y] * values[:, 1:, None, None, y])
    last = jnp.broadcast_to(payoff[:, -1:], (*payoff[:, -1:].shape[:4], *values.shape[3:]))
    return jnp.concatenate([payoff[:, :-1] + ahead, last], axis=1)
