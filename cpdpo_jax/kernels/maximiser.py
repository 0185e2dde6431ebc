"""The maximiser behind `extreme_expectation`: extended value iteration needs the distribution, not only its value.

Start from lower and distribute the slack 1 - sum(lower) in descending order of f:
    p_j = lower_j + min(spread_j, [slack - sum_{i before j} spread_i]^+).
"i before j" depends on f alone, so comparing all pairs once serves every state and action of a layer without sorting.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels.loops import unrolled_sum
from cpdpo_jax.kernels.machines.forms import jit
from cpdpo_jax.kernels.shapes import batch_shape


@jit()
def maximising_transition(lower: jax.Array, upper: jax.Array, f: jax.Array) -> jax.Array:
    """argmax of p.f over lower <= p <= upper, sum p = 1, for every state and action of a layer.

    lower and upper [S,A,S',*B], f [S',*B] of the next layer -> p [S,A,S',*B]. Ties in f go to the state with
    the lower index. Needs sum(lower) <= 1 <= sum(upper); a row of zeros remains zero.
    """
    n_next = f.shape[0]
    box = (*lower.shape[:2], n_next)
    batch_shape(f.ndim - 1, lower=(lower, box), upper=(upper, box), f=(f, (n_next,)))
    index = jnp.arange(n_next, dtype=jnp.int32).reshape(-1, *(1,) * (f.ndim - 1))
    before = [
        (f[i : i + 1] > f) | ((f[i : i + 1] == f) & (i < index)) for i in range(n_next)
    ]  # i before j: [S',*B] each
    spread = upper - lower
    slack = 1 - unrolled_sum(n_next, lambda j: lower[:, :, j])
    taken = unrolled_sum(n_next, lambda i: jnp.where(before[i][None, None], spread[:, :, i, None], 0))  # [S,A,S',*B]
    return lower + jnp.clip(slack[:, :, None] - taken, 0, spread)
