"""PO-DB's exploration bonus and its dilated backward recursion (Luo, Wei, Lee 2021, Algorithm 1)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels.extreme import extreme
from cpdpo_jax.kernels.loops import layer, scan_layers_backwards, unrolled_sum, with_layer
from cpdpo_jax.kernels.machines.forms import kernel
from cpdpo_jax.kernels.occupancy import check_batch, make_box
from cpdpo_jax.kernels.shapes import batch_shape, per_lane


@kernel(sizes="policy")
def exploration_bonus(policy: jax.Array, low: jax.Array, up: jax.Array, exploration: jax.Array) -> jax.Array:
    """b(x) = sum_a pi(a|x) (3 gamma L + L (q_up - q_low)) / (q_up + gamma), where q is pi(a|x) times the bound of x.

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


@kernel(sizes="policy")
def dilated_bonus(
    policy: jax.Array, bonus: jax.Array, lower: jax.Array, upper: jax.Array, dilation: jax.Array
) -> jax.Array:
    """B(x,a) = b(x) + dilation * max_{P in set} sum_y P(y|x,a) sum_a' pi(a'|y) B(y,a'); B = b in the last layer.

    policy [L,S,A,*B], bonus [L,S,*B], lower and upper [L-1,S,A,S,*B], dilation a scalar or [*B]
    (1 + 1/L in the paper, 1 without dilation) -> [L,S,A,*B]; finite but meaningless at masked pairs.
    """
    n_layers, n_states, n_actions = policy.shape[:3]
    batch_shape(policy.ndim - 3, bonus=(bonus, (n_layers, n_states)))
    batch = check_batch(policy, lower, upper)
    dtype = jnp.result_type(policy, bonus, lower, dilation)
    dilated = jnp.zeros((n_layers, n_states, n_actions, *batch), dtype)
    ahead = jnp.zeros((n_layers, n_states, *batch), dtype)  # sum_a pi(a|x) B(x,a)

    def step(k: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        dilated, ahead = carry
        least, spread, slack, excess = make_box(layer(lower, k), layer(upper, k), axis=2)
        best = extreme(
            lambda j: least[:, :, j],
            lambda j: spread[:, :, j],
            slack,
            excess,
            layer(ahead, k + 1)[:, None, None],
            maximize=True,
        )
        total = layer(bonus, k)[:, None] + per_lane(dilation, best.ndim) * best
        pi, dilated = layer(policy, k), with_layer(dilated, k, total)
        stored = layer(dilated, k)  # not `total`: XLA would recompute it inside the average
        return dilated, with_layer(ahead, k, unrolled_sum(n_actions, lambda a: pi[:, a] * stored[:, a]))

    last = jnp.broadcast_to(bonus[-1].astype(dtype), (n_states, *batch))
    dilated = with_layer(dilated, n_layers - 1, jnp.broadcast_to(last[:, None], (n_states, n_actions, *batch)))
    ahead = with_layer(ahead, n_layers - 1, last)
    return scan_layers_backwards(n_layers - 1, n_states, step, (dilated, ahead))[0]
