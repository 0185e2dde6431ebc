"""PO-DB's exploration bonus and its dilated backward recursion (Luo, Wei, Lee 2021, Algorithm 1)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels import accelerator
from cpdpo_jax.kernels.cpu.choice import compiled_kernel, over_lanes
from cpdpo_jax.kernels.extreme import Box, extreme, make_box
from cpdpo_jax.kernels.loops import layer, scan_layers_backwards, unrolled_sum, with_layer
from cpdpo_jax.kernels.shapes import batch_shape, per_lane
from cpdpo_jax.kernels.target import unrolls_states


@jax.jit
def exploration_bonus(policy: jax.Array, low: jax.Array, up: jax.Array, exploration: jax.Array) -> jax.Array:
    """b(x) = sum_a pi(a|x) (3 gamma L + L (q_up - q_low)) / (q_up + gamma), where q is pi(a|x) times x's bound.

    policy [L,S,A,*B], low and up [L,S,*B], exploration (gamma) a scalar or [*B] -> [L,S,*B].
    """
    n_layers, n_states, n_actions = policy.shape[:3]
    states = (n_layers, n_states)
    batch_shape(policy.ndim - 3, policy=(policy, (*states, n_actions)), low=(low, states), up=(up, states))

    gamma = per_lane(exploration, up.ndim)

    def term(a: int) -> jax.Array:
        pi = policy[:, :, a]
        return pi * (n_layers * (3 * gamma + pi * (up - low))) / (pi * up + gamma)

    return unrolled_sum(n_actions, term)


@jax.jit
def dilated_bonus(
    policy: jax.Array, bonus: jax.Array, lower: jax.Array, upper: jax.Array, dilation: jax.Array
) -> jax.Array:
    """B(x,a) = b(x) + dilation * max_{P in set} sum_y P(y|x,a) sum_a' pi(a'|y) B(y,a'); B = b in the last layer.

    policy [L,S,A,*B], bonus [L,S,*B], lower and upper [L-1,S,A,S,*B], dilation a scalar or [*B]
    (1 + 1/L in the paper, 1 for none) -> [L,S,A,*B]; finite but meaningless at masked pairs.
    """
    n_layers, n_states, n_actions = policy.shape[:3]
    box = (n_layers - 1, n_states, n_actions, n_states)
    batch_shape(policy.ndim - 3, lower=(lower, box), upper=(upper, box))
    return dilated_bonus_in_box(policy, bonus, make_box(lower, upper), dilation)


def dilated_bonus_in_box(policy: jax.Array, bonus: jax.Array, box: Box, dilation: jax.Array) -> jax.Array:
    """`dilated_bonus` for a `Box`, whose sums are already made."""
    n_layers, n_states, n_actions = policy.shape[:3]
    batch = batch_shape(
        policy.ndim - 3,
        policy=(policy, (n_layers, n_states, n_actions)),
        bonus=(bonus, (n_layers, n_states)),
        box=(box.lower, (n_layers - 1, n_states, n_actions, n_states)),
    )
    dtype = jnp.result_type(policy, bonus, box.lower, dilation)
    compiled = compiled_kernel("dilated_bonus", policy.shape[:3], dtype)
    if compiled is not None:
        factor = jnp.broadcast_to(dilation, batch)
        parts = (box.lower, 4), (box.spread, 4), (box.slack, 3)
        return over_lanes(compiled, _pure_recursion, (policy, 3), (bonus, 2), (factor, 0), *parts)[0]
    return _recursion(policy, bonus, box, dilation, batch, dtype)


def _pure_recursion(
    policy: jax.Array, bonus: jax.Array, dilation: jax.Array, lower: jax.Array, spread: jax.Array, slack: jax.Array
) -> tuple[jax.Array]:
    """`dilated_bonus_in_box` in pure JAX, all with one trailing axis."""
    box = Box(lower, spread, slack, slack - unrolled_sum(spread.shape[3], lambda j: spread[:, :, :, j]))
    return (_recursion(policy, bonus, box, dilation, policy.shape[3:], policy.dtype),)


def _recursion(
    policy: jax.Array, bonus: jax.Array, box: Box, dilation: jax.Array, batch: tuple[int, ...], dtype: Any
) -> jax.Array:
    n_layers, n_states, n_actions = policy.shape[:3]
    if unrolls_states(n_states):
        wide = jnp.broadcast_to(bonus.astype(dtype), (n_layers, n_states, *batch))
        return accelerator.dilated_recursion(policy, wide, box, dilation)
    dilated = jnp.zeros((n_layers, n_states, n_actions, *batch), dtype)
    ahead = jnp.zeros((n_layers, n_states, *batch), dtype)  # sum_a pi(a|x) B(x,a)

    def step(k: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        dilated, ahead = carry
        rows = Box(*(layer(part, k) for part in box))
        best = extreme(
            lambda j: rows.lower[:, :, j],
            lambda j: rows.spread[:, :, j],
            rows.slack,
            rows.excess,
            layer(ahead, k + 1)[:, None, None],
            maximize=True,
        )
        here = layer(bonus, k)[:, None] + per_lane(dilation, best.ndim) * best
        pi, dilated = layer(policy, k), with_layer(dilated, k, here)
        stored = layer(dilated, k)  # not `here`: XLA would compute it again inside the average
        return dilated, with_layer(ahead, k, unrolled_sum(n_actions, lambda a: pi[:, a] * stored[:, a]))

    last = jnp.broadcast_to(bonus[-1].astype(dtype), (n_states, *batch))
    dilated = with_layer(dilated, n_layers - 1, jnp.broadcast_to(last[:, None], (n_states, n_actions, *batch)))
    ahead = with_layer(ahead, n_layers - 1, last)
    return scan_layers_backwards(n_layers - 1, n_states, step, (dilated, ahead))[0]
