"""Loops over short axes, written so that the trailing batch axes stay vectorised.

What XLA's CPU compiler vectorises decides the speed here (measured, see `experiments/kernel_forms`): sums of static
slices are vectorised over the batch, reductions over a short axis and anything with a dynamic index are not. So sums
over states and actions are unrolled in Python, and the recursion over layers is a `lax.scan` over layer INDICES that
carries the buffer of results and is unrolled when it is lowered: its indices are constants then. (A scan that returns
the layers as its stacked output is 5 times slower: XLA computes a layer again inside each of its readers.)
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

MAX_UNROLLED_STATES = 8  # layers up to this width have sums over pairs of next states unrolled
MAX_BREAKPOINTS = 10  # states of a layer whose breakpoints are unrolled, wider ones loop over them; see `written_out`
MAX_WRITTEN_OUT = 4000  # layers times actions times pairs of states: 10 x 10 x 4, which compiles in some 8 s

MAX_STATES_OF_UNROLLED_LAYERS = 32  # the scan over layers wider than this stays a loop


def written_out(shape: tuple[int, ...]) -> bool:
    """Whether a CPU gets the recursions over a confidence set written out, for (layers, states, actions).

    In layers of 9 and 10 states that runs twice as fast as numba's sorted form, but compiles longer.
    """
    n_layers, n_states, n_actions = shape
    few = n_layers * n_actions * n_states**2 <= MAX_WRITTEN_OUT
    return n_states <= MAX_UNROLLED_STATES or (n_states <= MAX_BREAKPOINTS and few)


def unrolled_sum(length: int, term: Callable[[int], Any]) -> Any:
    """term(0) + term(1) + ... + term(length - 1), from the left, unrolled."""
    return unrolled_reduce(length, term, operator.add)


def unrolled_reduce(length: int, term: Callable[[int], Any], combine: Callable[[Any, Any], Any]) -> Any:
    """combine(... combine(term(0), term(1)) ..., term(length - 1)), unrolled."""
    total = term(0)
    for i in range(1, length):
        total = combine(total, term(i))
    return total


def larger(x: Any, y: Any) -> jax.Array:
    """max(x, y); y where one of them is no number.

    One instruction. `jnp.maximum` is five on a CPU, four of them for the number that x might not be: here a sum beside
    it, or y, hands that on.
    """
    return jnp.where(x > y, x, y)


def smaller(x: Any, y: Any) -> jax.Array:
    """min(x, y); y where one of them is no number. See `larger`."""
    return jnp.where(x < y, x, y)


def rolling_reduce(array: jax.Array, term: Callable[[jax.Array], jax.Array], combine: Callable) -> jax.Array:
    """`unrolled_reduce` of term(array[i]) over the first axis, but as a compiled loop.

    The array is rolled instead of indexed: a dynamic index would keep XLA from vectorising the term.
    """

    def body(_, carry):
        rolled, total = carry
        return jnp.concatenate([rolled[1:], rolled[:1]]), combine(total, term(rolled[0]))

    start = (jnp.concatenate([array[1:], array[:1]]), term(array[0]))
    return lax.fori_loop(1, array.shape[0], body, start)[1]


def scan_layers(n_steps: int, n_states: int, step: Callable[[jax.Array, Any], Any], carry: Any) -> Any:
    """step(n_steps - 1, ... step(1, step(0, carry))): a recursion forwards; see `scan_layers_backwards`."""
    return _scan(n_steps, step, carry, reverse=False, unroll=n_states <= MAX_STATES_OF_UNROLLED_LAYERS)


def scan_layers_backwards(
    n_steps: int, n_states: int, step: Callable[[jax.Array, Any], Any], carry: Any, unroll: bool = True
) -> Any:
    """step(0, step(1, ... step(n_steps - 1, carry))): a recursion over layers as one `lax.scan` over their indices.

    `step(k, carry)` reads layer k of its arrays with `layer` and writes it into the carry with `with_layer`. Layers of
    up to `MAX_STATES_OF_UNROLLED_LAYERS` states are unrolled: k becomes a constant, every slice a static one, and XLA's
    program has no loop. Wider ones loop: 30 layers of 64 states then compile in a fourteenth of the time and run a
    fifth longer (in narrow ones the dynamic index would cost up to five times).
    """
    return _scan(n_steps, step, carry, reverse=True, unroll=unroll and n_states <= MAX_STATES_OF_UNROLLED_LAYERS)


def _scan(n_steps: int, step: Callable, carry: Any, reverse: bool, unroll: bool) -> Any:
    if n_steps == 0:  # one layer: there is nothing of which the body could be traced
        return carry
    indices = np.arange(n_steps, dtype=np.int32)  # a literal: XLA folds slices of it, not of an iota
    return lax.scan(lambda carry, k: (step(k, carry), None), carry, indices, reverse=reverse, unroll=unroll)[0]


def layer(array: jax.Array, k: jax.Array | int, axis: int = 0) -> jax.Array:
    """array[k] along `axis`, for an index that a scan hands out: always within bounds."""
    return lax.dynamic_index_in_dim(array, k, axis, keepdims=False)


def with_layer(array: jax.Array, k: jax.Array | int, value: jax.Array, axis: int = 0) -> jax.Array:
    """`array` with `value` at index k of `axis`."""
    return lax.dynamic_update_index_in_dim(array, value, k, axis)
