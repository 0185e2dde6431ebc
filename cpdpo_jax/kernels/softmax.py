"""Softmax policies from re-centred weights."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels.loops import unrolled_reduce, unrolled_sum
from cpdpo_jax.kernels.tracing import materialise


def softmax_policy(log_weights: jax.Array, action_mask: jax.Array) -> jax.Array:
    """pi(a|x) proportional to exp(w(x,a)) over the allowed actions, 0 at padding; w must be re-centred. [...,A,*B].

    Axis 2 is the action, as in [L,S,A,*B]. The sum is always divided by: the exponential of a weight of 0 need not be
    exactly 1 if the compiler recomputes the weight.
    """
    weights = jnp.exp(jnp.where(action_mask, log_weights, -jnp.inf))
    total = unrolled_sum(weights.shape[2], lambda a: weights[:, :, a])
    return weights / jnp.maximum(total, jnp.finfo(total.dtype).tiny)[:, :, None]  # the total is 0 at a padded state


def recentred(log_weights: jax.Array, action_mask: jax.Array) -> jax.Array:
    """Shift the weights of each state so that the largest allowed weight is 0; masked weights become 0. [L,S,A,*B].

    Without the shift, float32 would lose the differences between actions to a bonus common to all of them.
    """
    log_weights = materialise(log_weights)
    allowed = jnp.where(action_mask, log_weights, -jnp.inf)
    largest = unrolled_reduce(log_weights.shape[2], lambda a: allowed[:, :, a], jnp.maximum)
    return jnp.where(action_mask, log_weights - largest[:, :, None], 0)


def uniform_policy(action_mask: jax.Array, dtype: Any) -> jax.Array:
    """The uniform distribution over the allowed actions, 0 at padding: [L,S,A,*B] bool -> [L,S,A,*B]."""
    allowed = action_mask.astype(dtype)
    return allowed / jnp.maximum(allowed.sum(axis=2, keepdims=True), 1)
