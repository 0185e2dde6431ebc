"""Checks that every policy played is a policy: probabilities that sum to 1 over the allowed actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common.types import SUM_TOLERANCE, Array
from cpdpo_jax.kernels.loops import unrolled_reduce, unrolled_sum

_REMEDY = (
    "its `policy` must return probabilities that sum to 1 over the actions of problem.action_mask, and 0 elsewhere."
)


class PolicyCheck(NamedTuple):
    """The largest deviations from a policy in all episodes so far."""

    sum_error: Array  # [B] largest |sum_a pi(a|x) - 1| of all episodes and states
    min_probability: Array  # [B] smallest probability; at an action that is not allowed, minus its absolute value
    first_improper: Array  # [B] int32, first episode without a policy; -1: none


def empty_check(n_lanes: int, dtype: Any) -> PolicyCheck:
    """The check before the first episode."""
    return PolicyCheck(
        sum_error=jnp.zeros(n_lanes, dtype),
        min_probability=jnp.ones(n_lanes, dtype),
        first_improper=jnp.full(n_lanes, -1, jnp.int32),
    )


def update_check(check: PolicyCheck, policy: jax.Array, mask: jax.Array, t: jax.Array) -> PolicyCheck:
    """Add the policy of episode t; policy and mask [L,S,A,B]. NaN is reported by `first_non_finite` instead."""
    n_actions = policy.shape[2]
    total = unrolled_sum(n_actions, lambda a: policy[:, :, a])
    real = unrolled_reduce(n_actions, lambda a: mask[:, :, a], jnp.logical_or)
    error = _reduce_axes(jnp.abs(total - real.astype(policy.dtype)), 2, jnp.maximum)

    def signed(a: int) -> jax.Array:
        return jnp.where(mask[:, :, a], policy[:, :, a], -jnp.abs(policy[:, :, a]))

    lowest = _reduce_axes(unrolled_reduce(n_actions, signed, jnp.minimum), 2, jnp.minimum)
    improper = (check.first_improper < 0) & ((error > SUM_TOLERANCE) | (lowest < 0))
    return PolicyCheck(
        sum_error=jnp.maximum(check.sum_error, error),
        min_probability=jnp.minimum(check.min_probability, lowest),
        first_improper=jnp.where(improper, t, check.first_improper),
    )


def raise_if_improper(check: PolicyCheck, learner: str, describe: Callable[[int], str]) -> None:
    """Raise if any lane played something other than a policy: its metrics are meaningless. `describe` names a lane."""
    first = np.asarray(check.first_improper)
    if (first < 0).all():
        return
    lane = int(np.argmin(np.where(first < 0, np.iinfo(np.int32).max, first)))
    error, lowest = float(np.asarray(check.sum_error)[lane]), float(np.asarray(check.min_probability)[lane])
    faults = []
    if error > SUM_TOLERANCE:
        faults.append(f"the sum of a state's probabilities differs from 1 by {error:.3g}")
    if lowest < 0:
        faults.append(f"a probability is {lowest:.3g}, or {-lowest:.3g} at an action that is not allowed")
    raise ValueError(
        f"learner {learner!r} does not play a policy, first in episode {first[lane] + 1} of {describe(lane)}: "
        f"{' and '.join(faults)}; {_REMEDY}"
    )


def check_final_policy(policy: np.ndarray, mask: np.ndarray, learner: str) -> None:
    """Raise if a run ends with something other than a policy; policy and mask [L,S,A,B]."""
    wrong = np.abs(policy.sum(axis=2) - mask.any(axis=2)) > SUM_TOLERANCE
    wrong |= ((policy < 0) | ((policy > 0) & ~mask)).any(axis=2)
    if wrong.any():
        layer, state, lane = np.argwhere(wrong)[0]
        row = np.round(policy[layer, state, :, lane], 4).tolist()
        raise ValueError(
            f"learner {learner!r} does not play a policy: {row} in state {state} of layer {layer}; {_REMEDY}"
        )


def _reduce_axes(values: jax.Array, axes: int, combine: Any) -> jax.Array:
    """The maximum or minimum over the first `axes` axes, by halving.

    XLA has no vectorised code for a fused reduction inside a function.
    """
    values, rest = values.reshape(-1, *values.shape[axes:]), None
    while len(values) > 1:
        half = len(values) // 2
        if len(values) % 2:
            rest = values[-1] if rest is None else combine(rest, values[-1])
        values = combine(values[:half], values[half : 2 * half])
    return values[0] if rest is None else combine(values[0], rest)
