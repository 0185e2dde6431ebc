"""The inner problem of every optimistic step: the extreme expectation over a box-constrained simplex.

By LP duality, the one-dimensional dual has an optimum at a breakpoint f_i. With c = upper - lower and
s = 1 - sum(lower), without sorting,
    max p.f = lower.f + min_i [s f_i + sum_j c_j (f_j - f_i)^+] = lower.f + min_i [e f_i + sum_j c_j max(f_i, f_j)]
    min p.f = lower.f + max_i [s f_i - sum_j c_j (f_i - f_j)^+] = lower.f + max_i [e f_i + sum_j c_j min(f_i, f_j)]
with e = s - sum(c) = 1 - sum(upper). The second form, for narrow layers, saves one operation per term. Accelerators use
a form without s and e, each of which would be a kernel launch:
    max p.f = min_i [f_i + sum_j (lower_j (f_j - f_i) + c_j (f_j - f_i)^+)].
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels.loops import larger, rolling_reduce, smaller, unrolled_reduce, unrolled_sum
from cpdpo_jax.kernels.machines.forms import jit
from cpdpo_jax.kernels.machines.sizes import MAX_BREAKPOINTS
from cpdpo_jax.kernels.shapes import batch_shape


@jit("maximize")
def extreme_expectation(lower: jax.Array, upper: jax.Array, f: jax.Array, maximize: bool) -> jax.Array:
    """Exact max (or min) of p.f over lower <= p <= upper, sum p = 1.

    Axis 0 is the next state, all other axes broadcast: [S,...], [S,...], [S,...] -> [...].
    Needs sum(lower) <= 1 <= sum(upper).
    """
    next_states = f.shape[:1]
    batch_shape(f.ndim - 1, lower=(lower, next_states), upper=(upper, next_states), f=(f, next_states))
    spread = upper - lower
    slack, excess = (1 - unrolled_sum(len(bound), bound.__getitem__) for bound in (lower, upper))
    return extreme(lower.__getitem__, spread.__getitem__, slack, excess, f, maximize)


def extreme(
    lower: Callable, spread: Callable, slack: jax.Array, excess: jax.Array, f: jax.Array, maximize: bool
) -> jax.Array:
    """`extreme_expectation` with the box as functions of the next state: lower(j), spread(j) and f[j] broadcast.

    Functions avoid moving the next state to the first axis: the transposition would cost more than the sums.
    """
    n_states = f.shape[0]
    farther, best_of, sign = (larger, smaller, 1) if maximize else (smaller, larger, -1)
    target, room = (
        [f[j] for j in range(n_states)],
        [spread(j) for j in range(n_states)],
    )  # evaluated once
    placed = unrolled_sum(n_states, lambda j: lower(j) * target[j])
    if n_states <= MAX_BREAKPOINTS:
        both = {(i, i): target[i] for i in range(n_states)}  # the larger (smaller) value of each pair
        for i, j in itertools.combinations(range(n_states), 2):
            both[i, j] = both[j, i] = farther(target[i], target[j])

        def at_breakpoint(i: int) -> jax.Array:
            return excess * target[i] + unrolled_sum(n_states, lambda j: room[j] * both[i, j])

        return placed + unrolled_reduce(n_states, at_breakpoint, best_of)

    def from_breakpoint(f_i: jax.Array) -> jax.Array:  # e f_i would cancel: |e| grows with the width
        beyond = unrolled_sum(n_states, lambda j: room[j] * jnp.maximum(sign * (target[j] - f_i), 0))
        return slack * f_i + sign * beyond

    return placed + rolling_reduce(f, from_breakpoint, best_of)
