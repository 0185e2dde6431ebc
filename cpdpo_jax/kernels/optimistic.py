"""Optimistic evaluation of CPD-OPPO: confidence widths raise rewards and lower costs (docs/cpd_oppo.md)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels.machines.forms import kernel
from cpdpo_jax.kernels.values import truncated_evaluation


@kernel(sizes="policy")
def optimistic_evaluation(
    counts: jax.Array, visits: jax.Array, policy: jax.Array, payoff_sum: jax.Array, scale: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Optimistic action values of a policy under the empirical model, for the reward and each cost:

        Q^r_k     = clip(min(1, r_hat + beta) + (L-k-1) w/2 + P_hat V^r_{k+1}, 0, L-k)
        Q^{g_i}_k = clip(max(0, g_hat_i - beta) - (L-k-1) w/2 + P_hat V^{g_i}_{k+1}, 0, L-k),      V = sum_a pi Q

    counts [L-1,S,A,S,*B] and visits [L,S,A,*B] int32, policy [L,S,A,*B], sums of sampled payoffs [1+M,L,S,A,*B], scale
    [L,*B] of `scaled_widths` -> (Q [1+M,L,S,A,*B], V(x_0) [1+M,*B]).
    """
    n = jnp.maximum(visits, 1).astype(policy.dtype)
    payoffs = optimistic_payoffs(visits, payoff_sum * (1 / n)[None], scale)
    return truncated_evaluation.paper(counts, n, policy, payoffs, steps_to_go(payoffs))


def optimistic_payoffs(visits: jax.Array, mean: jax.Array, scale: jax.Array) -> jax.Array:
    """min(1, r_hat + beta) + (L-k-1) w/2, then max(0, g_hat_i - beta) - (L-k-1) w/2: [1+M,L,S,A,*B]."""
    beta, w = scaled_widths(visits, scale)
    to_go = jnp.arange(len(w), 0, -1, dtype=w.dtype).reshape(-1, *(1,) * (w.ndim - 1))  # L - k
    reach = (to_go - 1) * w / 2  # the value of a row's error
    beta, reach = beta[None], reach[None]
    return jnp.concatenate([jnp.minimum(1, mean[:1] + beta) + reach, jnp.maximum(0, mean[1:] - beta) - reach])


def scaled_widths(visits: jax.Array, scale: jax.Array) -> tuple[jax.Array, jax.Array]:
    """beta = min(1, s_{L-1} / sqrt(n)) and w_k = min(2, s_k / sqrt(n)), w = 0 in the last layer; 1 and 2 if unvisited.

    visits [L,S,A,*B] int32, scale s [L,*B] (of w in layers 0..L-2, then of beta) -> (beta, w) [L,S,A,*B].
    """
    root = jnp.sqrt(1 / jnp.maximum(visits, 1).astype(scale.dtype))  # not 1 / sqrt(n): see machines/README.md
    unseen, scale = visits == 0, scale[:, None, None]
    w = jnp.where(unseen[:-1], 2, jnp.minimum(2, scale[:-1] * root[:-1]))
    beta = jnp.where(unseen, 1, jnp.minimum(1, scale[-1:] * root))
    return beta, jnp.concatenate([w, jnp.zeros_like(root[-1:])])


def steps_to_go(payoffs: jax.Array) -> jax.Array:
    """L - k, the upper bound on values of payoffs in [0,1]: [K,L,S,A,*B] -> [K,L,*1]. Lowered costs never exceed it."""
    n_payoffs, n_layers = payoffs.shape[:2]
    lanes = (1,) * (payoffs.ndim - 4)
    to_go = jnp.arange(n_layers, 0, -1, dtype=payoffs.dtype).reshape(1, -1, *lanes)
    return jnp.broadcast_to(to_go, (n_payoffs, n_layers, *lanes))
