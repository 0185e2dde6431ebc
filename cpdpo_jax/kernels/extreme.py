"""The inner problem of every optimistic step: the extreme expectation over a box-constrained simplex.

By LP duality the optimum of the one-dimensional dual sits at a breakpoint f_i. With c = upper - lower and
s = 1 - sum(lower), and no sorting,
    max p.f = lower.f + min_i [s f_i + sum_j c_j (f_j - f_i)^+]
    min p.f = lower.f + max_i [s f_i - sum_j c_j (f_i - f_j)^+]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels._loops import NARROW, fold, rolling_fold


class Box(NamedTuple):
    """{p : lower <= p <= upper, sum p = 1} for every pair, with the sums that the closed form wants."""

    lower: jax.Array  # [L-1,S,A,S,*B]
    spread: jax.Array  # [L-1,S,A,S,*B] upper - lower
    slack: jax.Array  # [L-1,S,A,*B] 1 - sum lower: the mass left to place


def make_box(lower: jax.Array, upper: jax.Array, axis: int = 3) -> Box:
    """The box between `lower` and `upper`, whose next-state axis is `axis`."""
    at = (slice(None),) * axis
    return Box(lower=lower, spread=upper - lower, slack=1 - fold(lower.shape[axis], lambda j: lower[*at, j]))


@partial(jax.jit, static_argnames="maximize")
def extreme_expectation(lower: jax.Array, upper: jax.Array, f: jax.Array, maximize: bool) -> jax.Array:
    """Exact max (or min) of p.f over lower <= p <= upper, sum p = 1.

    Axis 0 is the next state, all other axes broadcast: [S,...], [S,...], [S,...] -> [...].
    Needs sum(lower) <= 1 <= sum(upper).
    """
    box = make_box(lower, upper, axis=0)
    return extreme(lambda j: box.lower[j], lambda j: box.spread[j], box.slack, f, maximize)


def extreme(lower: Callable, spread: Callable, slack: jax.Array, f: jax.Array, maximize: bool) -> jax.Array:
    """`extreme_expectation` with the box's next state as an argument: lower(j), spread(j) and f[j] broadcast.

    Functions, not arrays with the next state first: a transposition would cost more than the sums.
    """
    n_states = f.shape[0]

    def at_breakpoint(f_i: jax.Array) -> jax.Array:
        if maximize:
            return slack * f_i + fold(n_states, lambda j: spread(j) * jnp.maximum(f[j] - f_i, 0))
        return slack * f_i - fold(n_states, lambda j: spread(j) * jnp.maximum(f_i - f[j], 0))

    combine = jnp.minimum if maximize else jnp.maximum
    if n_states <= NARROW:
        best = fold(n_states, lambda i: at_breakpoint(f[i]), combine)
    else:
        best = rolling_fold(f, at_breakpoint, combine)
    return fold(n_states, lambda j: lower(j) * f[j]) + best
