"""The two inner loops of `sorted` in vectors: numba's own vectorisation of them is 3 to 5 times slower.

Arrays are C-contiguous and their last axis is a multiple of sixteen.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import njit

from cpdpo_jax.kernels.machines.numba.simd import (
    LANES,
    add,
    broadcast,
    count_if_before,
    element,
    load,
    multiply_add,
    smaller,
    store,
    zero,
)

compile_sorted: Any = functools.partial(njit, nogil=True, fastmath={"contract", "nsz", "nnan", "ninf"})
_inline = functools.partial(compile_sorted, forceinline=True)


@_inline
def ranks(f: Any, row: Any, n: Any, rank: Any) -> None:
    """rank[row,j] = place of f[row,j] among f[row,:n] in descending order, ties in order; both [rows, padded]."""
    width = f.shape[1]
    for j in range(0, width, LANES):
        values, count = load(f, row * width + j), zero(f)
        for i in range(n):
            count = count_if_before(count, element(f, row * width + i), i, values, j)
        store(count, rank, row * width + j)


@_inline
def fill_boxes(
    lower: Any, spread: Any, slack: Any, order: Any, value: Any, step: Any, row: Any, n: Any, best: Any
) -> None:
    """For order, value and step at `row`: best[row,p] =
    sum_i value[i] lower[order[i],p] + step[i] min(slack[p], spread[order[0],p] + ... + spread[order[i],p]).

    lower and spread [S,P], slack [P], order, value and step [rows, padded], best [rows,P].
    """
    width, n_pairs = order.shape[1], slack.shape[0]
    for p in range(0, n_pairs, LANES):
        free, room, filled, placed = load(slack, p), zero(slack), zero(slack), zero(slack)
        for i in range(n):
            at = element(order, row * width + i) * n_pairs + p
            room = add(room, load(spread, at))
            filled = multiply_add(broadcast(step, row * width + i), smaller(room, free), filled)
            placed = multiply_add(broadcast(value, row * width + i), load(lower, at), placed)
        store(add(filled, placed), best, row * n_pairs + p)
