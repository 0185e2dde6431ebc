"""Whether all that a learner played were policies: probabilities that sum to 1, on the allowed actions."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cpdpo_jax.common.types import Array
from cpdpo_jax.kernels.loops import unrolled_reduce, unrolled_sum

SUM_TOLERANCE = 1e-3  # of the probabilities of a state: far above float32's rounding


class Played(NamedTuple):
    """How far what was played so far was from a policy."""

    sum_error: Array  # [B] the largest |sum_a pi(a|x) - 1| of all episodes and states
    least: Array  # [B] the least probability; at an action that is not allowed, minus its probability
    first_improper: Array  # [B] int32, first episode that played no policy; -1: none


def nothing_played(n_lanes: int, dtype: Any) -> Played:
    """Before the first episode."""
    return Played(jnp.zeros(n_lanes, dtype), jnp.ones(n_lanes, dtype), jnp.full(n_lanes, -1, jnp.int32))


def check_played(before: Played, policy: jax.Array, mask: jax.Array, t: jax.Array) -> Played:
    """Take episode t's policy into account; policy and mask [L,S,A,B]. One that is not finite is `first_bad`'s."""
    n_actions = policy.shape[2]
    total = unrolled_sum(n_actions, lambda a: policy[:, :, a])
    real = unrolled_reduce(n_actions, lambda a: mask[:, :, a], jnp.logical_or)
    error = _over_all(jnp.abs(total - real.astype(policy.dtype)), 2, jnp.maximum)
    least = _over_all(jnp.where(mask, policy, -jnp.abs(policy)), 3, jnp.minimum)
    improper = (before.first_improper < 0) & ((error > SUM_TOLERANCE) | (least < 0))
    return Played(
        sum_error=jnp.maximum(before.sum_error, error),
        least=jnp.minimum(before.least, least),
        first_improper=jnp.where(improper, t, before.first_improper),
    )


def _over_all(values: jax.Array, axes: int, combine: Any) -> jax.Array:
    """The largest or least over the first axes, by halves: XLA has no code for a fused reduction inside a function."""
    values, rest = values.reshape(-1, *values.shape[axes:]), None
    while len(values) > 1:
        half = len(values) // 2
        if len(values) % 2:
            rest = values[-1] if rest is None else combine(rest, values[-1])
        values = combine(values[:half], values[half : 2 * half])
    return values[0] if rest is None else combine(values[0], rest)
