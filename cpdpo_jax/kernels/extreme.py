"""The inner problem of every optimistic step: the extreme expectation over a box-constrained simplex.

By LP duality the optimum of the one-dimensional dual sits at a breakpoint f_i. With c = upper - lower and
s = 1 - sum(lower), and no sorting,
    max p.f = lower.f + min_i [s f_i + sum_j c_j (f_j - f_i)^+] = lower.f + min_i [e f_i + sum_j c_j max(f_i, f_j)]
    min p.f = lower.f + max_i [s f_i - sum_j c_j (f_i - f_j)^+] = lower.f + max_i [e f_i + sum_j c_j min(f_i, f_j)]
with e = s - sum(c) = 1 - sum(upper): the second form, for narrow layers, has one operation less per term. And without
s or e, for an accelerator, where each would be a kernel:
    max p.f = min_i [f_i + sum_j (lower_j (f_j - f_i) + c_j (f_j - f_i)^+)].
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels.loops import MAX_BREAKPOINTS, larger, rolling_reduce, smaller, unrolled_reduce, unrolled_sum
from cpdpo_jax.kernels.shapes import batch_shape
from cpdpo_jax.kernels.target import unrolls_states


class Box(NamedTuple):
    """{p : lower <= p <= upper, sum p = 1} for every pair, with the sums that a CPU's closed form wants."""

    lower: jax.Array  # [L-1,S,A,S,*B]
    spread: jax.Array  # [L-1,S,A,S,*B] upper - lower
    slack: Any  # [L-1,S,A,*B] 1 - sum lower: the mass left to place. None where an accelerator's forms do without
    excess: Any  # [L-1,S,A,*B] 1 - sum upper: minus the room left when it is placed. None as `slack`


def make_box(lower: jax.Array, upper: jax.Array) -> Box:
    """The box between `lower` and `upper`, [L-1,S,A,S,*B] each."""
    if unrolls_states(lower.shape[1]) and len(lower) > 0:
        return Box(lower, upper - lower, None, None)
    return _with_sums(lower, upper, axis=3)


def _with_sums(lower: jax.Array, upper: jax.Array, axis: int) -> Box:
    """A box whose next-state axis is `axis`."""
    leading = (slice(None),) * axis

    def rest(array: jax.Array) -> jax.Array:
        return 1 - unrolled_sum(array.shape[axis], lambda j: array[*leading, j])

    return Box(lower=lower, spread=upper - lower, slack=rest(lower), excess=rest(upper))


@partial(jax.jit, static_argnames="maximize")
def extreme_expectation(lower: jax.Array, upper: jax.Array, f: jax.Array, maximize: bool) -> jax.Array:
    """Exact max (or min) of p.f over lower <= p <= upper, sum p = 1.

    Axis 0 is the next state, all other axes broadcast: [S,...], [S,...], [S,...] -> [...].
    Needs sum(lower) <= 1 <= sum(upper).
    """
    next_states = f.shape[:1]
    batch_shape(f.ndim - 1, lower=(lower, next_states), upper=(upper, next_states), f=(f, next_states))
    box = _with_sums(lower, upper, axis=0)
    return extreme(lambda j: box.lower[j], lambda j: box.spread[j], box.slack, box.excess, f, maximize)


def extreme(
    lower: Callable, spread: Callable, slack: jax.Array, excess: jax.Array, f: jax.Array, maximize: bool
) -> jax.Array:
    """`extreme_expectation` with the box's next state as an argument: lower(j), spread(j) and f[j] broadcast.

    Functions, not arrays with the next state first: a transposition would cost more than the sums.
    """
    n_states = f.shape[0]
    farther, best_of, sign = (larger, smaller, 1) if maximize else (smaller, larger, -1)
    target, room = [f[j] for j in range(n_states)], [spread(j) for j in range(n_states)]  # once: tracing takes time
    placed = unrolled_sum(n_states, lambda j: lower(j) * target[j])
    if n_states <= MAX_BREAKPOINTS:
        both = {(i, i): target[i] for i in range(n_states)}  # the farther one of every two
        for i, j in itertools.combinations(range(n_states), 2):
            both[i, j] = both[j, i] = farther(target[i], target[j])

        def at_breakpoint(i: int) -> jax.Array:
            return excess * target[i] + unrolled_sum(n_states, lambda j: room[j] * both[i, j])

        return placed + unrolled_reduce(n_states, at_breakpoint, best_of)

    def from_breakpoint(f_i: jax.Array) -> jax.Array:  # differences: e f_i would cancel badly, |e| grows with the width
        beyond = unrolled_sum(n_states, lambda j: room[j] * jnp.maximum(sign * (target[j] - f_i), 0))
        return slack * f_i + sign * beyond

    return placed + rolling_reduce(f, from_breakpoint, best_of)
