"""Bounds on the probability of reaching each state under any transition function of the confidence set.

COMP-UOB of Jin et al. (2020): for a target state x of layer h, f = 1{. = x} on layer h and, for k = h-1..0,
    f(y) = sum_a pi(a|y) max_{p in set(y,a)} p.f        (min for the lower bound);  the answer is f(x_0).
The targets of all layers move backwards together. Two steps are cheap: the first starts from a one-hot f, where
    max p_x = min(upper_x, lower_x + slack),   min p_x = max(lower_x, 1 - sum_{j != x} upper_j),
and layer 0 has one state only.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels.cpu.switch import compiled_kernels, over_lanes
from cpdpo_jax.kernels.extreme import Box, extreme, make_box
from cpdpo_jax.kernels.loops import MAX_UNROLLED_STATES, batch_shape, fold


@jax.jit
def occupancy_bounds(policy: jax.Array, lower: jax.Array, upper: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Smallest and largest reach probability of every state over all P with lower <= P <= upper.

    policy [L,S,A,*B], lower and upper [L-1,S,A,S,*B] -> (low [L,S,*B], up [L,S,*B]).
    State 0 of layer 0 is x_0: both bounds are 1 there and 0 at the padding beside it.
    """
    batch_shape(policy.ndim - 3, (policy, 3), (lower, 4), (upper, 4))
    return occupancy_bounds_in_box(policy, make_box(lower, upper))


def occupancy_bounds_in_box(policy: jax.Array, box: Box) -> tuple[jax.Array, jax.Array]:
    """`occupancy_bounds` for a box whose sums are already made.

    Deviation: occupancy-clip. The clips only undo rounding (a row that sums to 1 - 1e-7): 0 <= low <= up <= 1 holds
    exactly, and PO-DB divides by up + gamma with a gamma that may be as small as the rounding.
    """
    compiled = compiled_kernels(policy.shape[1])
    if compiled is not None:
        parts = (box.lower, 4), (box.spread, 4), (box.slack, 3), (box.excess, 3)
        low, up = over_lanes(compiled.occupancy_bounds, (policy, 3), *parts)
        return low, up
    up = jnp.clip(_reach(policy, box, maximize=True), 0, 1)
    return jnp.clip(_reach(policy, box, maximize=False), 0, up), up


def _reach(policy: jax.Array, box: Box, maximize: bool) -> jax.Array:
    """One of the two bounds, [L,S,*B]."""
    n_layers, n_states, n_actions = policy.shape[:3]
    batch = batch_shape(policy.ndim - 3, (policy, 3), (box.lower, 4))
    bound = jnp.zeros((1, n_states, *batch), policy.dtype).at[0, 0].set(1)
    reached = None  # [S of layer k, targets, *B], the targets of the nearest layer first
    for k in reversed(range(n_layers - 1)):
        sources = slice(0, 1 if k == 0 else n_states)
        row = Box(*(part[k, sources] for part in box))
        one_step = _average(policy[k, sources], lambda a, row=row: _one_hot_extreme(row, a, maximize), n_actions)
        if reached is None:
            reached = one_step
        else:
            reached = jnp.concatenate([one_step, _step(policy[k, sources], row, reached, maximize)], axis=1)
    if reached is None:
        return bound
    return jnp.concatenate([bound, reached[0].reshape(n_layers - 1, n_states, *batch)])


def _one_hot_extreme(row: Box, a: int, maximize: bool) -> jax.Array:
    """The extreme probability of every single next state under action a: [S, S targets, *B]."""
    lower, spread = row.lower[:, a], row.spread[:, a]
    if maximize:
        return lower + jnp.minimum(spread, row.slack[:, a, None])
    return lower + jnp.maximum(row.excess[:, a, None] + spread, 0)


def _step(pi: jax.Array, row: Box, f: jax.Array, maximize: bool) -> jax.Array:
    """sum_a pi(a|y) extreme p.f for every target: f [S, targets, *B] of layer k+1 -> [S, targets, *B] of layer k."""
    n_states, n_actions = f.shape[0], pi.shape[1]
    if n_states <= MAX_UNROLLED_STATES:
        of_action = [_step_by_action(*(part[:, a] for part in row), f, maximize) for a in range(n_actions)]
        return _average(pi, lambda a: of_action[a], n_actions)
    lower, spread = row.lower[:, :, :, None], row.spread[:, :, :, None]
    slack, excess = row.slack[:, :, None], row.excess[:, :, None]
    best = extreme(lambda j: lower[:, :, j], lambda j: spread[:, :, j], slack, excess, f[:, None, None], maximize)
    return _average(pi, lambda a: best[:, a], n_actions)


@partial(jax.jit, static_argnames="maximize")  # traced once for all actions
def _step_by_action(
    lower: jax.Array, spread: jax.Array, slack: jax.Array, excess: jax.Array, f: jax.Array, maximize: bool
) -> jax.Array:
    """extreme p.f under one action: lower and spread [S,S,*B], slack and excess [S,*B] -> [S, targets, *B]."""
    lower, spread = lower[:, :, None], spread[:, :, None]
    return extreme(lambda j: lower[:, j], lambda j: spread[:, j], slack[:, None], excess[:, None], f[:, None], maximize)


def _average(pi: jax.Array, of_action, n_actions: int) -> jax.Array:
    """sum_a pi(a|y) of_action(a): [S,A,*B], [S,targets,*B] -> [S,targets,*B]."""
    return fold(n_actions, lambda a: pi[:, a, None] * of_action(a))
