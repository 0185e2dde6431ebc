"""Forms of the recursions for an accelerator, where a kernel's launch costs more than what it computes.

The same formulas as beside the paper, cut otherwise: few kernels, each with as many threads as states, targets and
lanes give. `together` says what is made before anything reads it; between two of them XLA fuses. Sums and maxima are
reductions (a loop inside a thread), and little is sliced: every slice that several kernels read is a kernel more.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels.extreme import Box
from cpdpo_jax.kernels.loops import MAX_UNROLLED_STATES, unrolled_reduce, unrolled_sum
from cpdpo_jax.kernels.shapes import per_lane

MAX_TERMS_OF_ONE_KERNEL = 256  # products of a value function that are written out in one kernel


def together(tree: Any) -> Any:
    """These arrays as they are, but made and stored before anything else reads them."""
    return jax.lax.optimization_barrier(tree)


def values(transition: jax.Array, policy: jax.Array, payoff: jax.Array, batch: tuple[int, ...]) -> jax.Array:
    """`policy_value`, [K,L,S,*B]: V_k(x) = R_k(x) + sum_y M_k(x,y) V_{k+1}(y) with the policy averaged out first.

    One kernel makes M and R, then a thread for each payoff and lane goes through as many layers as fit one kernel:
    every state's value is an array [K,*B] of its own there, so that all of them are made at one index.
    """
    n_layers, n_states, _ = policy.shape[:3]
    none = [(0, 0)] * (transition.ndim - 1)
    ahead = jnp.pad(transition, [(0, 1), *none])  # nothing lies ahead of the last layer
    tables = [jnp.broadcast_to(table, (*table.shape[:4], *batch)) for table in (ahead, jnp.moveaxis(payoff, 0, 3))]
    averaged = together((policy[:, :, :, None] * jnp.concatenate(tables, axis=3)).sum(axis=2))  # [L,S,S+K,*B]
    step, reward = averaged[:, :, :n_states], jnp.moveaxis(averaged[:, :, n_states:], 2, 0)
    per_kernel = max(1, MAX_TERMS_OF_ONE_KERNEL // n_states**2)
    layers = [[reward[:, -1, x] for x in range(n_states)]]
    for k in reversed(range(n_layers - 1)):
        after = layers[-1]
        if len(layers) % per_kernel == 0:
            whole = together(jnp.stack(after))
            after = [whole[y] for y in range(n_states)]
        layers.append(
            [
                reward[:, k, x]
                + unrolled_sum(n_states, lambda y, k=k, x=x, after=after: step[k, x, y][None] * after[y])
                for x in range(n_states)
            ]
        )
    return jnp.stack([jnp.stack(here, axis=1) for here in layers[::-1]], axis=1)


def largest_expectation_unrolled(lower: jax.Array, spread: jax.Array, f: jax.Array, axis: int) -> jax.Array:
    """`largest_expectation`, the breakpoints written out: the better form where f has no targets."""
    front = (slice(None),) * axis

    def at_breakpoint(i: int) -> jax.Array:
        f_i = f[*front, i : i + 1]
        return f_i[*front, 0] + (lower * f - lower * f_i + jnp.maximum(spread * f - spread * f_i, 0)).sum(axis=axis)

    return unrolled_reduce(f.shape[axis], at_breakpoint, jnp.minimum)


def largest_expectation(lower: jax.Array, spread: jax.Array, f: jax.Array, axis: int) -> jax.Array:
    """max p.f of every pair by breakpoints (see `extreme`), the next state on `axis` of lower, spread and f."""
    f_i, f_j = jnp.expand_dims(f, axis + 1), jnp.expand_dims(f, axis)
    lower, spread = jnp.expand_dims(lower, axis), jnp.expand_dims(spread, axis)
    gained = lower * f_j - lower * f_i + jnp.maximum(spread * f_j - spread * f_i, 0)  # f_j - f_i would be a kernel
    return (f + gained.sum(axis=axis + 1)).min(axis=axis)


def reach_bounds(policy: jax.Array, box: Box, batch: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """The lower and upper reach probabilities of layers 1..L-1, [L-1,S,*B] each: both in one recursion.

    min p.f = -max p.(-f), so that the lower bound is the upper one of targets with a minus: an axis of two signs.
    """
    n_layers, n_states, _ = policy.shape[:3]
    sign = jnp.asarray([1, -1], policy.dtype).reshape(1, 1, 1, 2, 1, *(1,) * len(batch))
    pi = policy[:-1, :, :, None, None]
    lower, spread = box.lower[:, :, :, None], box.spread[:, :, :, None]  # [L-1,S,A,1,S',*B]
    others = (1 - jnp.eye(n_states, dtype=policy.dtype)).reshape(1, 1, 1, 1, n_states, n_states, *(1,) * len(batch))
    elsewhere = lower + jnp.where(sign > 0, 0, spread)  # at least, or at most
    rest = 1 - (others * elsewhere[:, :, :, :, None]).sum(axis=5)
    single = jnp.where(sign > 0, jnp.minimum(lower + spread, rest), jnp.maximum(lower, rest))
    nearest = together((pi * (sign * single)).sum(axis=2))  # of every layer the targets one step ahead: [L-1,S,2,S',*B]
    reached = nearest[-1]  # [S of layer k, 2, targets, *B]
    for k in reversed(range(n_layers - 2)):
        wide = box.lower[k][:, :, :, None, None], box.spread[k][:, :, :, None, None]
        moved = (pi[k] * largest_expectation(*wide, reached[None, None], axis=2)).sum(axis=1)
        here = jnp.concatenate([nearest[k], moved], axis=2)
        reached = together(here if k > 0 else here[:1])  # layer 0 has one state
    low, up = -reached[0, 1], reached[0, 0]
    shape = (n_layers - 1, n_states, *batch)
    return low.reshape(shape), up.reshape(shape)


def dilated_recursion(policy: jax.Array, bonus: jax.Array, box: Box, dilation: jax.Array) -> jax.Array:
    """`dilated_bonus_in_box`: a kernel a layer for the average over actions, then all pairs of all layers at once."""
    n_layers = policy.shape[0]
    lower, spread = together((box.lower, box.spread))  # slices of its own: those that two recursions share are kernels
    aheads = [bonus[-1]]  # sum_a pi(a|x) B(x,a) of layers L-1, ..., 1
    for k in reversed(range(1, n_layers - 1)):

        def at_action(a: int, k: int = k) -> jax.Array:
            best = largest_expectation_unrolled(lower[k, :, a], spread[k, :, a], aheads[-1][None], axis=1)
            return policy[k, :, a] * (bonus[k] + per_lane(dilation, best.ndim) * best)

        if policy.shape[1] <= MAX_UNROLLED_STATES:  # actions written out: else a kernel for them and one for their sum
            aheads.append(together(unrolled_sum(policy.shape[2], at_action)))
        else:
            best = largest_expectation_unrolled(lower[k], spread[k], aheads[-1][None, None], axis=2)
            here = bonus[k][:, None] + per_lane(dilation, best.ndim) * best
            aheads.append(together((policy[k] * here).sum(axis=1)))
    ahead = jnp.stack(aheads[::-1])  # [L-1,S,*B]
    best = largest_expectation(lower, spread, ahead[:, None, None], axis=3)
    best = jnp.pad(best, [(0, 1), *[(0, 0)] * (best.ndim - 1)])  # B = b in the last layer
    return bonus[:, :, None] + per_lane(dilation, best.ndim) * best


def truncated_values(
    counts: jax.Array, visits: jax.Array, policy: jax.Array, payoff: jax.Array, ceiling: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """`learners.optimistic.truncated_evaluation`: a kernel a layer for the values, then all action values at once."""
    n_layers = policy.shape[0]
    aheads: list[jax.Array] = []  # V of layers L-1, ..., 1

    def average(k: int, q: jax.Array) -> jax.Array:
        return (policy[k][None] * jnp.clip(q, 0, ceiling[:, k, None, None])).sum(axis=2)

    def one_step(k: int) -> jax.Array:
        if k + 1 == n_layers:
            return payoff[:, k]
        total = (counts[k].astype(payoff.dtype)[None] * aheads[-1][:, None, None]).sum(axis=3)  # [K,S,A,*B]
        return payoff[:, k] + (1 / visits[k])[None] * total

    for k in reversed(range(1, n_layers)):
        aheads.append(together(average(k, one_step(k))))
    values = average(0, one_step(0))[:, 0]
    if not aheads:
        return jnp.clip(payoff, 0, ceiling[:, :, None, None]), values
    ahead = jnp.stack(aheads[::-1], axis=1)[:, :, None, None]  # [K,L-1,1,1,S,*B]
    total = (counts.astype(payoff.dtype)[None] * ahead).sum(axis=4)
    total = jnp.pad((1 / visits[:-1])[None] * total, [(0, 0), (0, 1), *[(0, 0)] * (total.ndim - 2)])
    return jnp.clip(payoff + total, 0, ceiling[:, :, None, None]), values
