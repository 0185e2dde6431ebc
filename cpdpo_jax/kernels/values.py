"""Value functions by backward recursion: no occupancy measure anywhere (Section 3.1)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels import accelerator
from cpdpo_jax.kernels.cpu.choice import replaced_by
from cpdpo_jax.kernels.cpu.in_place import stored
from cpdpo_jax.kernels.loops import layer, scan_layers_backwards, unrolled_sum, with_layer
from cpdpo_jax.kernels.shapes import batch_shape
from cpdpo_jax.kernels.target import unrolls_states


@jax.jit
def policy_value(transition: jax.Array, policy: jax.Array, payoff: jax.Array) -> jax.Array:
    """V^{pi,P}(x; v) = E[sum of v over the layers from x's on | x], K payoffs at once (Section 3.1).

    transition [L-1,S,A,S,*B], policy [L,S,A,*B], payoff [K,L,S,A,*B] -> [K,L,S,*B]; V(x_0) is [:, 0, 0].
    """
    n_layers, n_states, n_actions = policy.shape[:3]
    batch = batch_shape(
        policy.ndim - 3,
        transition=(transition, (n_layers - 1, n_states, n_actions, n_states)),
        policy=(policy, (n_layers, n_states, n_actions)),
        payoff=(payoff, (None, n_layers, n_states, n_actions)),
    )
    if unrolls_states(n_states):
        return accelerator.values(transition, policy, payoff, batch)
    values = jnp.zeros((n_layers, payoff.shape[0], n_states, *batch), jnp.result_type(transition, policy, payoff))

    def step(k: jax.Array, values: jax.Array) -> jax.Array:
        q = _one_step(layer(transition, k), layer(payoff, k, axis=1), layer(values, k + 1))
        return with_layer(values, k, stored(_average(layer(policy, k), q)))

    values = with_layer(values, n_layers - 1, _average(policy[-1], payoff[:, -1]))
    values = scan_layers_backwards(n_layers - 1, n_states, step, values)
    return jnp.moveaxis(values, 0, 1)


def _one_step(transition: jax.Array, payoff: jax.Array, ahead: jax.Array) -> jax.Array:
    """v(x,a) + sum_y P(y|x,a) V(y): [S,A,S,*B], [K,S,A,*B], [K,S,*B] -> [K,S,A,*B]."""
    return payoff + unrolled_sum(ahead.shape[1], lambda y: transition[None, :, :, y] * ahead[:, None, None, y])


def _average(policy: jax.Array, q: jax.Array) -> jax.Array:
    """sum_a pi(a|x) q(x,a): [S,A,*B], [K,S,A,*B] -> [K,S,*B]."""
    return unrolled_sum(policy.shape[1], lambda a: policy[None, :, a] * q[:, :, a])


@jax.jit
def action_value(transition: jax.Array, policy: jax.Array, payoff: jax.Array) -> jax.Array:
    """Q^{pi,P}(x,a; v) = v(x,a) + sum_y P(y|x,a) V^{pi,P}(y; v), K payoffs at once.

    transition [L-1,S,A,S,*B], policy [L,S,A,*B], payoff [K,L,S,A,*B] -> [K,L,S,A,*B].
    """
    values = policy_value(transition, policy, payoff)
    ahead = unrolled_sum(policy.shape[1], lambda y: transition[None, :, :, :, y] * values[:, 1:, None, None, y])
    last = jnp.broadcast_to(payoff[:, -1:], (*payoff[:, -1:].shape[:4], *values.shape[3:]))
    return jnp.concatenate([payoff[:, :-1] + ahead, last], axis=1)


def root_value(transition: jax.Array, policy: jax.Array, payoff: jax.Array) -> jax.Array:
    """V^{pi,P}(x_0; v) of K payoffs: `policy_value` in the first layer, [K,*B]. One model may serve all lanes."""
    call = replaced_by("root_value", _root_value, policy.shape[1], policy.shape[3:], policy.dtype)
    return call(transition, policy, payoff)[0]


def _root_value(transition: jax.Array, policy: jax.Array, payoff: jax.Array) -> tuple[jax.Array]:
    return (policy_value(transition, policy, payoff)[:, 0, 0],)


def truncated_evaluation(
    counts: jax.Array, visits: jax.Array, policy: jax.Array, payoff: jax.Array, ceiling: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Q_h(x,a) = clip(v(x,a) + sum_y P_hat(y|x,a) V_{h+1}(y), 0, ceiling_h), V_h(x) = sum_a pi(a|x) Q_h(x,a).

    P_hat = counts [L-1,S,A,S,*B] / visits [L,S,A,*B] (n >= 1); policy [L,S,A,*B], K payoffs [K,L,S,A,*B] with their
    bonuses, ceiling [K,L,*B] -> (Q [K,L,S,A,*B], V(x_0) [K,*B]). Each payoff is evaluated and truncated apart.
    """
    if unrolls_states(policy.shape[1]):
        return accelerator.truncated_values(counts, visits, policy, payoff, ceiling)
    lanes = policy.shape[3:]
    plain = ceiling.shape[2:] == (1,) and counts.dtype == jnp.int32 and payoff.shape[4:] == visits.shape[3:] == lanes
    kernel = replaced_by("truncated_evaluation", _truncated_evaluation, policy.shape[1], lanes, policy.dtype)
    return (kernel if plain else _truncated_evaluation)(counts, 1 / visits, policy, payoff, ceiling)


def _truncated_evaluation(
    counts: jax.Array, per_visit: jax.Array, policy: jax.Array, payoff: jax.Array, ceiling: jax.Array
) -> tuple[jax.Array, jax.Array]:
    n_layers, n_states, n_actions = policy.shape[:3]
    pairs = (n_layers, n_states, n_actions)
    batch = batch_shape(
        policy.ndim - 3,
        counts=(counts, (n_layers - 1, *pairs[1:], n_states)),
        per_visit=(per_visit, pairs),
        policy=(policy, pairs),
        payoff=(payoff, (None, *pairs)),
        ceiling=(ceiling, (payoff.shape[0], n_layers)),
    )
    action_values = jnp.zeros((*payoff.shape[:4], *batch), payoff.dtype)
    values = jnp.zeros((n_layers, payoff.shape[0], n_states, *batch), payoff.dtype)

    def truncated(k: Any, q: jax.Array, both: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        action_values, values = both
        clipped = jnp.clip(q, 0, layer(ceiling, k, axis=1)[:, None, None])
        action_values = with_layer(action_values, k, clipped, axis=1)
        pi, stored = layer(policy, k), layer(action_values, k, axis=1)
        return action_values, with_layer(values, k, unrolled_sum(n_actions, lambda a: pi[None, :, a] * stored[:, :, a]))

    def step(k: jax.Array, both: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        arrivals, ahead = layer(counts, k), layer(both[1], k + 1)
        total = unrolled_sum(n_states, lambda y: arrivals[None, :, :, y].astype(payoff.dtype) * ahead[:, y, None, None])
        return truncated(k, layer(payoff, k, axis=1) + layer(per_visit, k) * total, both)

    last = jnp.broadcast_to(payoff[:, -1], (payoff.shape[0], n_states, n_actions, *batch))
    start = truncated(n_layers - 1, last, (action_values, values))
    action_values, values = scan_layers_backwards(n_layers - 1, n_states, step, start)
    return action_values, values[0, :, 0]
