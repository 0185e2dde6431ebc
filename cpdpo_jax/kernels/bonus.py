"""PO-DB's exploration bonus and its dilated backward recursion (Luo, Wei, Lee 2021, Algorithm 1)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels.cpu.switch import compiled_kernels, over_lanes
from cpdpo_jax.kernels.extreme import Box, extreme, make_box
from cpdpo_jax.kernels.loops import batch_shape, fold


@jax.jit
def exploration_bonus(policy: jax.Array, low: jax.Array, up: jax.Array, exploration: jax.Array) -> jax.Array:
    """b(x) = sum_a pi(a|x) (3 gamma L + L (q_up - q_low)) / (q_up + gamma), where q is pi(a|x) times x's bound.

    policy [L,S,A,*B], low and up [L,S,*B], exploration (gamma) a scalar or [*B] -> [L,S,*B].
    """
    n_layers, _, n_actions = policy.shape[:3]

    def term(a: int) -> jax.Array:
        pi = policy[:, :, a]
        return pi * (n_layers * (3 * exploration + pi * (up - low))) / (pi * up + exploration)

    return fold(n_actions, term)


@jax.jit
def dilated_bonus(
    policy: jax.Array, bonus: jax.Array, lower: jax.Array, upper: jax.Array, dilation: jax.Array
) -> jax.Array:
    """B(x,a) = b(x) + dilation * max_{P in set} sum_y P(y|x,a) sum_a' pi(a'|y) B(y,a'); B = b in the last layer.

    policy [L,S,A,*B], bonus [L,S,*B], lower and upper [L-1,S,A,S,*B], dilation a scalar or [*B]
    (1 + 1/L in the paper, 1 for none) -> [L,S,A,*B]; finite but meaningless at masked pairs.
    """
    batch_shape(policy.ndim - 3, (policy, 3), (bonus, 2), (lower, 4), (upper, 4))
    return dilated_bonus_in_box(policy, bonus, make_box(lower, upper), dilation)


def dilated_bonus_in_box(policy: jax.Array, bonus: jax.Array, box: Box, dilation: jax.Array) -> jax.Array:
    """`dilated_bonus` for a box whose sums are already made."""
    n_layers, n_states, n_actions = policy.shape[:3]
    batch = batch_shape(policy.ndim - 3, (policy, 3), (bonus, 2), (box.lower, 4))
    compiled = compiled_kernels(n_states)
    if compiled is not None:
        factor = jnp.broadcast_to(dilation, batch)
        parts = (box.lower, 4), (box.spread, 4), (box.slack, 3)
        return over_lanes(compiled.dilated_bonus, (policy, 3), (bonus, 2), (factor, 0), *parts)[0]
    dtype = jnp.result_type(policy, bonus, box.lower, dilation)
    dilated = jnp.zeros((n_layers, n_states, n_actions, *batch), dtype).at[-1].set(bonus[-1, :, None])
    ahead = jnp.zeros((n_layers, n_states, *batch), dtype).at[-1].set(bonus[-1])  # sum_a pi(a|x) B(x,a)
    for k in reversed(range(n_layers - 1)):
        lower, spread = box.lower[k], box.spread[k]
        best = extreme(
            lambda j, lower=lower: lower[:, :, j],
            lambda j, spread=spread: spread[:, :, j],
            box.slack[k],
            box.excess[k],
            ahead[k + 1][:, None, None],
            maximize=True,
        )
        dilated = dilated.at[k].set(bonus[k, :, None] + dilation * best)
        ahead = ahead.at[k].set(fold(n_actions, lambda a, k=k, of=dilated: policy[k, :, a] * of[k, :, a]))
    return dilated
