"""Table lookups lane by lane: entries at visited pairs, and the rows from which an episode samples."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels.machines.sizes import MAX_UNROLLED_STATES
from cpdpo_jax.kernels.shapes import batch_shape


def at_index(index: jax.Array, table: jax.Array) -> jax.Array:
    """table[index], lane by lane: table [N,...,*B] (size 1 broadcasts), index [*B] -> [...,*B].

    Narrow tables use selects, which vectorise over lanes; wide tables use a gather, a single operation that does not.
    """
    leading = max(1, table.ndim - index.ndim)
    batch_shape(index.ndim, index=(index, ()), table=(table, (None,) * leading))
    if table.shape[0] <= MAX_UNROLLED_STATES:
        return _select(index, lambda i: table[i], table.shape[0])
    if index.ndim == 1 and table.shape[-1] == 1:  # one table for all lanes
        return jnp.moveaxis(table[..., 0][index], 0, -1)
    along = index.reshape((1,) * (table.ndim - index.ndim) + index.shape)
    return jnp.take_along_axis(table, along, axis=0)[0]


def at_pairs(state: jax.Array, action: jax.Array, table: jax.Array) -> jax.Array:
    """The entries of a table at the visited pairs: state and action [L,*B], table [...,L,S,A,*B] -> [...,L,*B]."""
    rank = state.ndim - 1
    first = max(1, table.ndim - rank - 2)  # the axis of S
    layers = state.shape[:1]
    batch_shape(
        rank,
        state=(state, layers),
        action=(action, layers),
        table=(table, (*(None,) * (first - 1), *layers, None, None)),
    )
    n_states, n_actions = table.shape[first : first + 2]
    batch = table.shape[first + 2 :]
    if n_states > MAX_UNROLLED_STATES:
        flat = table.reshape(*table.shape[:first], n_states * n_actions, *batch)
        pair = state * n_actions + action
        if batch == (1,):  # one table for all lanes
            return jnp.take_along_axis(flat[..., 0], pair.reshape((1,) * (first - 1) + pair.shape), axis=-1)
        along = pair.reshape((1,) * (first - 1) + (len(pair), 1, *pair.shape[1:]))
        return jnp.take_along_axis(flat, along, axis=first).squeeze(first)
    lanes = (slice(None),) * rank
    rows = [_select(state, lambda x, a=a: table[..., x, a, *lanes], n_states) for a in range(n_actions)]
    return _select(action, lambda a: rows[a], n_actions)


def _select(index: jax.Array, entry: Callable[[int], jax.Array], length: int) -> jax.Array:
    """entry(index) among entry(0..length-1)."""
    chosen = entry(0)
    for i in range(1, length):
        chosen = jnp.where(index == i, entry(i), chosen)
    return chosen
