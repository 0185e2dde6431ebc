"""Probabilities of reaching each state: under one transition function, and their bounds over a confidence set.

COMP-UOB of Jin et al. (2020): for a target state x of layer h, f = 1{. = x} on layer h and, for k = h-1..0,
    f(y) = sum_a pi(a|y) max_{p in set(y,a)} p.f        (min for the lower bound);  the answer is f(x_0).
The targets of all layers move backwards together. Two steps are cheap: the first starts from a one-hot f, where
    max p_x = min(upper_x, lower_x + slack),   min p_x = max(lower_x, 1 - sum_{j != x} upper_j),
and layer 0 has one state only.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels import accelerator
from cpdpo_jax.kernels.cpu.choice import compiled_kernel, over_lanes
from cpdpo_jax.kernels.cpu.in_place import stored
from cpdpo_jax.kernels.extreme import Box, extreme, make_box
from cpdpo_jax.kernels.loops import (
    layer,
    scan_layers,
    scan_layers_backwards,
    unrolled_sum,
    with_layer,
    written_out,
)
from cpdpo_jax.kernels.shapes import batch_shape
from cpdpo_jax.kernels.target import unrolls_states


@jax.jit
def occupancy(transition: jax.Array, policy: jax.Array) -> jax.Array:
    """P_{pi,P}(x), the probability of visiting each state, forwards: [L-1,S,A,S,*B], [L,S,A,*B] -> [L,S,*B].

    Episodes start in state 0 of layer 0.
    """
    n_layers, n_states, n_actions = policy.shape[:3]
    batch = batch_shape(
        policy.ndim - 3,
        transition=(transition, (n_layers - 1, n_states, n_actions, n_states)),
        policy=(policy, (n_layers, n_states, n_actions)),
    )
    reached = jnp.zeros((n_layers, n_states, *batch), jnp.result_type(transition, policy)).at[0, 0].set(1)

    def step(k: jax.Array, reached: jax.Array) -> jax.Array:
        here, pi, rows = layer(reached, k), layer(policy, k), layer(transition, k)

        def arriving(x: int) -> jax.Array:
            return here[x, None] * unrolled_sum(n_actions, lambda a: pi[x, a, None] * rows[x, a])

        return with_layer(reached, k + 1, unrolled_sum(n_states, arriving))

    return scan_layers(n_layers - 1, n_states, step, reached)


@jax.jit
def occupancy_bounds(policy: jax.Array, lower: jax.Array, upper: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Smallest and largest reach probability of every state over all P with lower <= P <= upper.

    policy [L,S,A,*B], lower and upper [L-1,S,A,S,*B] -> (low [L,S,*B], up [L,S,*B]).
    State 0 of layer 0 is x_0: both bounds are 1 there and 0 at the padding beside it.
    """
    n_layers, n_states, n_actions = policy.shape[:3]
    box = (n_layers - 1, n_states, n_actions, n_states)
    batch_shape(policy.ndim - 3, lower=(lower, box), upper=(upper, box))
    return occupancy_bounds_in_box(policy, make_box(lower, upper))


def occupancy_bounds_in_box(policy: jax.Array, box: Box) -> tuple[jax.Array, jax.Array]:
    """`occupancy_bounds` for a `Box`, whose sums are already made.

    Deviation: occupancy-clip. The clips only undo rounding (a row that sums to 1 - 1e-7): 0 <= low <= up <= 1 holds
    exactly, and PO-DB divides by up + gamma with a gamma that may be as small as the rounding.
    """
    n_layers, n_states, n_actions = policy.shape[:3]
    batch = batch_shape(
        policy.ndim - 3,
        policy=(policy, (n_layers, n_states, n_actions)),
        box=(box.lower, (n_layers - 1, n_states, n_actions, n_states)),
    )
    compiled = compiled_kernel("occupancy_bounds", policy.shape[:3], jnp.result_type(policy, box.lower))
    if compiled is not None:
        parts = (box.lower, 4), (box.spread, 4), (box.slack, 3), (box.excess, 3)
        low, up = over_lanes(compiled, _pure_bounds, (policy, 3), *parts)
        return low, up
    return _bounds(policy, box, batch)


def _pure_bounds(policy: jax.Array, *parts: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`occupancy_bounds_in_box` in pure JAX, for the parts of a `Box` with one trailing axis each."""
    return _bounds(policy, Box(*parts), policy.shape[3:])


def _bounds(policy: jax.Array, box: Box, batch: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    if unrolls_states(policy.shape[1]) and len(policy) > 1:
        low, up = accelerator.reach_bounds(policy, box, batch)
        first = jnp.zeros((1, *up.shape[1:]), up.dtype).at[0, 0].set(1)
        up = jnp.concatenate([first, jnp.clip(up, 0, 1)])
        return jnp.clip(jnp.concatenate([first, low]), 0, up), up
    if written_out(policy.shape[:3]):
        low, up = _reach_narrow(policy, box, batch)
    else:
        low, up = (_reach_wide(policy, box, batch, maximize) for maximize in (False, True))
    up = jnp.clip(up, 0, 1)
    return jnp.clip(low, 0, up), up


def _reach_narrow(policy: jax.Array, box: Box, batch: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Both bounds, [L,S,*B] each, the array of targets growing layer by layer: unrolled in Python.

    min p.f = -max p.(-f), bit by bit: the lower bounds are targets with a minus, and one recursion has half the code.
    Not a scan, which costs speed here (both bounds, float32, CPU, measured in turn): the form of `_reach_wide` takes
    1.6 times as long unrolled and 12.6 as a loop at 5 x 5 x 3, 256 lanes; 8.0 and 12.4 times at 8 x 8 x 4, 64 lanes.
    """
    n_layers, n_states, n_actions = policy.shape[:3]
    bound = jnp.zeros((1, n_states, *batch), policy.dtype).at[0, 0].set(1)
    reached = None  # [S of layer k, targets, *B]: the nearest layer's upper ones first, then its lower ones
    for k in reversed(range(n_layers - 1)):
        sources = slice(0, 1 if k == 0 else n_states)
        pi = policy[k, sources]
        rows = [Box(*(part[k, sources, a] for part in box)) for a in range(n_actions)]
        here = [_one_hot_step(pi, rows.__getitem__, True), -_one_hot_step(pi, rows.__getitem__, False)]
        if reached is not None:
            by_action = []
            for a, row in enumerate(rows):  # slices of the whole box: those of a layer's would be copied for them
                lower, spread = ([part[k, sources, a, j] for j in range(n_states)] for part in box[:2])
                by_action.append(_largest_by_action(lower, spread, row.slack, row.excess, reached))
            here.append(_average(pi, by_action.__getitem__))
        reached = stored(jnp.concatenate(here, axis=1))
    if reached is None:
        return bound, bound
    both = reached[0].reshape(n_layers - 1, 2, n_states, *batch)
    return jnp.concatenate([bound, -both[:, 1]]), jnp.concatenate([bound, both[:, 0]])


def _reach_wide(policy: jax.Array, box: Box, batch: tuple[int, ...], maximize: bool) -> jax.Array:
    """One of the bounds, [L,S,*B], as a scan over layers that carries the targets of all of them, [S, (L-1) S, *B].

    The targets of layers not yet begun are 0 and stay it (p.0 = 0): the price of a fixed size. One update of CPD-PO
    with 30 layers of 64 states compiles in 14-18 s. Against the growing form of `_reach_narrow` a CPU takes 4.7 times
    as long to run it and a fifth to compile it at 6 x 12 x 3, 3.2 times and an eighth at 8 x 20 x 3 (a CPU with numba
    runs neither).
    """
    n_layers, n_states, _ = policy.shape[:3]
    dtype = jnp.result_type(policy, box.lower)
    reached = jnp.zeros((n_states, (n_layers - 1) * n_states, *batch), dtype)  # targets: layers 1..L-1, states

    def step(k: jax.Array, reached: jax.Array) -> jax.Array:
        pi, rows = layer(policy, k), Box(*(layer(part, k) for part in box))
        lower, spread = rows.lower[:, :, :, None], rows.spread[:, :, :, None]
        best = extreme(
            lambda j: lower[:, :, j],
            lambda j: spread[:, :, j],
            rows.slack[:, :, None],
            rows.excess[:, :, None],
            reached[:, None, None],
            maximize,
        )
        moved = _average(pi, lambda a: best[:, a])
        nearest = _one_hot_step(pi, lambda a: Box(*(part[:, a] for part in rows)), maximize)
        nearest = jnp.broadcast_to(nearest, (n_states, n_states, *batch))
        return jax.lax.dynamic_update_slice_in_dim(moved, nearest, k * n_states, axis=1)

    reached = scan_layers_backwards(n_layers - 1, n_states, step, reached, unroll=False)
    bound = jnp.zeros((1, n_states, *batch), dtype).at[0, 0].set(1)
    return jnp.concatenate([bound, reached[0].reshape(n_layers - 1, n_states, *batch)])


def _one_hot_step(pi: jax.Array, rows: Callable[[int], Box], maximize: bool) -> jax.Array:
    """sum_a pi(a|y) times the extreme probability of every single next state: [S,A,*B] -> [S, S targets, *B]."""

    def of_action(a: int) -> jax.Array:
        row = rows(a)
        if maximize:
            return row.lower + jnp.minimum(row.spread, row.slack[:, None])
        return row.lower + jnp.maximum(row.excess[:, None] + row.spread, 0)

    return _average(pi, of_action)


@jax.jit  # traced once for all actions
def _largest_by_action(
    lower: list[jax.Array], spread: list[jax.Array], slack: jax.Array, excess: jax.Array, f: jax.Array
) -> jax.Array:
    """max p.f under one action: S lower and spread [S,*B], slack and excess [S,*B] -> [S, targets, *B]."""
    return extreme(
        lambda j: lower[j][:, None], lambda j: spread[j][:, None], slack[:, None], excess[:, None], f[:, None], True
    )


def _average(pi: jax.Array, of_action: Callable[[int], jax.Array]) -> jax.Array:
    """sum_a pi(a|y) of_action(a): [S,A,*B], [S,targets,*B] each -> [S,targets,*B]."""
    return unrolled_sum(pi.shape[1], lambda a: pi[:, a, None] * of_action(a))
