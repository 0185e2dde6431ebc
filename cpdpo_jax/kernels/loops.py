"""Loops over short axes that keep the trailing batch axes vectorised.

The speed depends on what XLA's CPU compiler vectorises (measured in `experiments/kernel_forms`): it vectorises sums of
static slices over the batch, but neither reductions over a short axis nor anything with a dynamic index. Sums over
states and actions are therefore unrolled in Python. The recursion over layers is a `lax.scan` over layer indices that
carries the buffer of results and is unrolled when lowered, so that its indices are constants. (A scan that returns the
layers as stacked outputs is 5 times slower, because XLA recomputes a layer inside each of its readers.)
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from cpdpo_jax.kernels.machines.sizes import MAX_SCAN_UNROLLED_STATES
from cpdpo_jax.kernels.tracing import mark_varying


def unrolled_sum(length: int, term: Callable[[int], Any]) -> Any:
    """term(0) + term(1) + ... + term(length - 1), added from the left, unrolled."""
    return unrolled_reduce(length, term, operator.add)


def unrolled_reduce(length: int, term: Callable[[int], Any], combine: Callable[[Any, Any], Any]) -> Any:
    """combine(... combine(term(0), term(1)) ..., term(length - 1)), unrolled."""
    total = term(0)
    for i in range(1, length):
        total = combine(total, term(i))
    return total


def larger(x: Any, y: Any) -> jax.Array:
    """max(x, y); returns y if either is NaN.

    One CPU instruction; `jnp.maximum` takes five, four of which handle a NaN in x.
    """
    return jnp.where(x > y, x, y)


def smaller(x: Any, y: Any) -> jax.Array:
    """min(x, y); returns y if either is NaN. See `larger`."""
    return jnp.where(x < y, x, y)


def rolling_reduce(array: jax.Array, term: Callable[[jax.Array], jax.Array], combine: Callable[..., Any]) -> jax.Array:
    """`unrolled_reduce` of term(array[i]) over the first axis, as a compiled loop.

    The array is rolled rather than indexed, because a dynamic index would prevent XLA from vectorising the term.
    """

    def body(_, carry):
        rolled, total = carry
        return jnp.concatenate([rolled[1:], rolled[:1]]), combine(total, term(rolled[0]))

    start = (jnp.concatenate([array[1:], array[:1]]), term(array[0]))
    return lax.fori_loop(1, array.shape[0], body, mark_varying(start))[1]


def scan_layers(n_steps: int, n_states: int, step: Callable[[jax.Array, Any], Any], carry: Any) -> Any:
    """step(n_steps - 1, ... step(1, step(0, carry))), a forward recursion; see `scan_layers_backwards`."""
    return _scan(n_steps, step, carry, reverse=False, unroll=n_states <= MAX_SCAN_UNROLLED_STATES)


def scan_layers_backwards(
    n_steps: int, n_states: int, step: Callable[[jax.Array, Any], Any], carry: Any, unroll: bool = True
) -> Any:
    """step(0, step(1, ... step(n_steps - 1, carry))), a backward recursion as one `lax.scan` over layer indices.

    `step(k, carry)` reads layer k of its arrays with `layer` and writes it into the carry with `with_layer`. Up to
    `MAX_SCAN_UNROLLED_STATES` states, the scan is unrolled: k is a constant and all slices are static. For wider layers
    it remains a loop: 30 layers of 64 states then compile in a fourteenth of the time and run a fifth longer. (In
    narrow layers the dynamic index would cost up to five times as much.)
    """
    return _scan(n_steps, step, carry, reverse=True, unroll=unroll and n_states <= MAX_SCAN_UNROLLED_STATES)


def _scan(n_steps: int, step: Callable, carry: Any, reverse: bool, unroll: bool) -> Any:
    if n_steps == 0:  # one layer: `lax.scan` has no index to trace the body with
        return carry
    indices = np.arange(n_steps, dtype=np.int32)  # a literal: XLA folds its slices, but not those of an iota
    return lax.scan(
        lambda carry, k: (step(k, carry), None), mark_varying(carry), indices, reverse=reverse, unroll=unroll
    )[0]


def layer(array: jax.Array, k: jax.Array | int, axis: int = 0) -> jax.Array:
    """array[k] along `axis`, for the index of a scan, which is always within bounds."""
    return lax.dynamic_index_in_dim(array, k, axis, keepdims=False)


def with_layer(array: jax.Array, k: jax.Array | int, value: jax.Array, axis: int = 0) -> jax.Array:
    """`array` with `value` at index k of `axis`."""
    return lax.dynamic_update_index_in_dim(array, value, k, axis)
