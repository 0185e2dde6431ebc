"""Loops over short axes, written so that the trailing batch axes stay vectorised.

What XLA's CPU compiler vectorises decides the speed here (measured, see `experiments/kernel_forms`): sums of static
slices are vectorised over the batch, reductions over a short axis and anything with a dynamic index are not. So loops
over layers, states and actions are unrolled in Python, and results are written into a buffer layer by layer: that also
keeps XLA from computing a layer again inside each of its readers. Very wide layers are the exception (`backwards`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

MAX_UNROLLED_STATES = (
    8  # layers up to this width have their breakpoints unrolled; wider ones loop over them, or are `compiled`
)

WIDE = 32  # the loop over layers wider than this is compiled, not unrolled


def fold(length: int, term: Callable[[int], Any], combine: Callable = operator.add) -> Any:
    """combine(... combine(term(0), term(1)) ..., term(length - 1)), unrolled."""
    total = term(0)
    for i in range(1, length):
        total = combine(total, term(i))
    return total


def rolling_fold(array: jax.Array, term: Callable[[jax.Array], jax.Array], combine: Callable) -> jax.Array:
    """`fold` of term(array[i]) over the first axis as a compiled loop.

    The array is rolled instead of indexed: a dynamic index would keep XLA from vectorising the term.
    """

    def body(_, carry):
        rolled, total = carry
        return jnp.concatenate([rolled[1:], rolled[:1]]), combine(total, term(rolled[0]))

    start = (jnp.concatenate([array[1:], array[:1]]), term(array[0]))
    return lax.fori_loop(1, array.shape[0], body, start)[1]


def backwards(n_steps: int, n_states: int, step: Callable[[Any, Any], Any], carry: Any) -> Any:
    """step(0, step(1, ... step(n_steps - 1, carry))): a recursion over layers, k being an index or a traced one.

    Unrolled, but not for layers of more than `WIDE` states: 30 layers of 64 states then compile in a fourteenth of the
    time and run a fifth longer (in narrow ones the dynamic index would cost up to five times). The same bits.
    """
    if n_states > WIDE:
        return lax.fori_loop(0, n_steps, lambda i, carry: step(n_steps - 1 - i, carry), carry)
    for k in reversed(range(n_steps)):
        carry = step(k, carry)
    return carry


def batch_shape(rank: int, *arrays: tuple[jax.Array, int]) -> tuple[int, ...]:
    """The common trailing shape of arrays, each given with its number of problem axes; size 1 broadcasts."""
    for array, axes in arrays:
        if array.ndim != axes + rank:
            raise ValueError(
                f"an array of shape {array.shape} has {array.ndim - axes} trailing batch axes where the policy has "
                f"{rank}; give every argument the policy's trailing axes (size 1 broadcasts)."
            )
    return jnp.broadcast_shapes(*(array.shape[axes:] for array, axes in arrays))
