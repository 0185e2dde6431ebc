"""The dual step and the Lagrangian loss (Algorithm 2, lines 7 and 8)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels.shapes import batch_shape, per_lane


def dual_max(values: jax.Array, threshold: jax.Array, cap: jax.Array) -> jax.Array:
    """argmax over lambda in {0, cap} of lambda (V(g_i) - alpha_i): cap where the optimistic value exceeds alpha_i.

    values and threshold [M,*B], cap a scalar or [*B] -> [M,*B]. The paper's cap is (L+1)/rho.
    """
    n_constraints = values.shape[0]
    batch_shape(values.ndim - 1, values=(values, (n_constraints,)), threshold=(threshold, (n_constraints,)))
    return jnp.where(values > threshold, per_lane(cap, values.ndim), jnp.zeros_like(values))


def lagrangian_loss(
    reward_upper: jax.Array,
    cost_lower: jax.Array,
    multipliers: jax.Array,
    threshold: jax.Array,
    cap: jax.Array,
    n_layers: int,
) -> jax.Array:
    """cap m - [r_upper - sum_i lambda_i (g_lower_i - alpha_i / L)] at the visited pairs.

    reward_upper [L,*B], cost_lower [M,L,*B], multipliers and threshold [M,*B] -> [L,*B].
    """
    n_constraints = cost_lower.shape[0]
    batch_shape(
        reward_upper.ndim - 1,
        reward_upper=(reward_upper, (n_layers,)),
        cost_lower=(cost_lower, (n_constraints, n_layers)),
        multipliers=(multipliers, (n_constraints,)),
        threshold=(threshold, (n_constraints,)),
    )
    loss = per_lane(cap * n_constraints, reward_upper.ndim) - reward_upper
    for i in range(n_constraints):
        loss = loss + multipliers[i, None] * (cost_lower[i] - threshold[i, None] / n_layers)
    return loss
