"""Value functions by backward recursion, without occupancy measures (Section 3.1)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels.loops import layer, scan_layers_backwards, unrolled_sum, with_layer
from cpdpo_jax.kernels.machines.forms import kernel
from cpdpo_jax.kernels.shapes import batch_shape
from cpdpo_jax.kernels.tracing import materialise


@kernel(sizes="policy")
def policy_value(transition: jax.Array, policy: jax.Array, payoff: jax.Array) -> jax.Array:
    """V^{pi,P}(x; v) = E[sum of v from the layer of x on | x], for K payoffs at once (Section 3.1).

    transition [L-1,S,A,S,*B], policy [L,S,A,*B], payoff [K,L,S,A,*B] -> [K,L,S,*B]; V(x_0) is [:, 0, 0].
    """
    n_layers, n_states, n_actions = policy.shape[:3]
    if payoff.ndim == policy.ndim and payoff.shape[:3] == policy.shape[:3]:
        letters = ", ".join("KLSA") + ", B" * (policy.ndim - 3)
        raise ValueError(f"payoff has shape {payoff.shape}; give [{letters}], such as payoff[None] for one payoff.")
    batch = batch_shape(
        policy.ndim - 3,
        transition=(transition, (n_layers - 1, n_states, n_actions, n_states)),
        policy=(policy, (n_layers, n_states, n_actions)),
        payoff=(payoff, (None, n_layers, n_states, n_actions)),
    )
    values = jnp.zeros((n_layers, payoff.shape[0], n_states, *batch), jnp.result_type(transition, policy, payoff))

    def step(k: jax.Array, values: jax.Array) -> jax.Array:
        q = _one_step(layer(transition, k), layer(payoff, k, axis=1), layer(values, k + 1))
        return with_layer(values, k, materialise(_average(layer(policy, k), q)))

    values = with_layer(values, n_layers - 1, _average(policy[-1], payoff[:, -1]))
    values = scan_layers_backwards(n_layers - 1, n_states, step, values)
    return jnp.moveaxis(values, 0, 1)


def _one_step(transition: jax.Array, payoff: jax.Array, ahead: jax.Array) -> jax.Array:
    """v(x,a) + sum_y P(y|x,a) V(y): [S,A,S,*B], [K,S,A,*B], [K,S,*B] -> [K,S,A,*B]."""
    return payoff + unrolled_sum(ahead.shape[1], lambda y: transition[None, :, :, y] * ahead[:, None, None, y])


def _average(policy: jax.Array, q: jax.Array) -> jax.Array:
    """sum_a pi(a|x) q(x,a): [S,A,*B], [K,S,A,*B] -> [K,S,*B]."""
    return unrolled_sum(policy.shape[1], lambda a: policy[None, :, a] * q[:, :, a])


def action_value(transition: jax.Array, policy: jax.Array, payoff: jax.Array) -> jax.Array:
    """Q^{pi,P}(x,a; v) = v(x,a) + sum_y P(y|x,a) V^{pi,P}(y; v), for K payoffs at once.

    transition [L-1,S,A,S,*B], policy [L,S,A,*B], payoff [K,L,S,A,*B] -> [K,L,S,A,*B].
    """
    values = policy_value(transition, policy, payoff)
    ahead = unrolled_sum(policy.shape[1], lambda y: transition[None, :, :, :, y] * values[:, 1:, None, None, y])
    last = jnp.broadcast_to(payoff[:, -1:], (*payoff[:, -1:].shape[:4], *values.shape[3:]))
    return jnp.concatenate([payoff[:, :-1] + ahead, last], axis=1)


@kernel(sizes="policy")
def root_value(transition: jax.Array, policy: jax.Array, payoff: jax.Array) -> jax.Array:
    """V^{pi,P}(x_0; v) of K payoffs, [K,*B]: `policy_value` in the first layer. All lanes may share one model."""
    return policy_value.paper(transition, policy, payoff)[:, 0, 0]


@kernel(sizes="policy")
def truncated_evaluation(
    counts: jax.Array, visits: jax.Array, policy: jax.Array, payoff: jax.Array, ceiling: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Q_h(x,a) = clip(v(x,a) + sum_y P_hat(y|x,a) V_{h+1}(y), 0, ceiling_h), V_h(x) = sum_a pi(a|x) Q_h(x,a).

    P_hat = counts [L-1,S,A,S,*B] / visits [L,S,A,*B] (n >= 1); policy [L,S,A,*B], K payoffs [K,L,S,A,*B] with their
    bonuses, ceiling [K,L,*B] -> (Q [K,L,S,A,*B], V(x_0) [K,*B]). Each payoff is evaluated and truncated separately.
    """
    n_layers, n_states, n_actions = policy.shape[:3]
    pairs = (n_layers, n_states, n_actions)
    batch = batch_shape(
        policy.ndim - 3,
        counts=(counts, (n_layers - 1, *pairs[1:], n_states)),
        visits=(visits, pairs),
        policy=(policy, pairs),
        payoff=(payoff, (None, *pairs)),
        ceiling=(ceiling, (payoff.shape[0], n_layers)),
    )
    per_visit = 1 / visits
    action_values = jnp.zeros((*payoff.shape[:4], *batch), payoff.dtype)
    values = jnp.zeros((n_layers, payoff.shape[0], n_states, *batch), payoff.dtype)

    def truncated(k: Any, q: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        action_values, values = carry
        clipped = jnp.clip(q, 0, layer(ceiling, k, axis=1)[:, None, None])
        action_values = with_layer(action_values, k, clipped, axis=1)
        pi, stored = layer(policy, k), layer(action_values, k, axis=1)
        v = materialise(unrolled_sum(n_actions, lambda a: pi[None, :, a] * stored[:, :, a]))
        return action_values, with_layer(values, k, v)

    def step(k: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        arrivals, ahead = layer(counts, k), layer(carry[1], k + 1)
        total = unrolled_sum(n_states, lambda y: arrivals[None, :, :, y].astype(payoff.dtype) * ahead[:, y, None, None])
        return truncated(k, layer(payoff, k, axis=1) + layer(per_visit, k)[None] * total, carry)

    last = jnp.broadcast_to(payoff[:, -1], (payoff.shape[0], n_states, n_actions, *batch))
    start = truncated(n_layers - 1, last, (action_values, values))
    action_values, values = scan_layers_backwards(n_layers - 1, n_states, step, start)
    return action_values, values[0, :, 0]
