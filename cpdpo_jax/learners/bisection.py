"""The bisection for one multiplier by which `ghosh` and `opse` choose their policies."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels.tracing import mark_varying

BISECTIONS = 24  # the multiplier to the precision of float32


def bisect(
    cost: Callable[[jax.Array], jax.Array], threshold: jax.Array, cap: jax.Array, *, try_cap: bool
) -> tuple[jax.Array, jax.Array]:
    """The multiplier [B]: 0 if cost(0) [M,B] <= threshold [M,B], else the feasible end of bisections of [0, cap [B]].

    The second result says where the cap was tried and is infeasible too; the multiplier is then the cap. The loop ends
    early once no lane has an interval left, because further iterations would change nothing.
    """
    turns = 1 + try_cap + BISECTIONS

    def unsettled(carry: tuple[jax.Array, ...]) -> jax.Array:
        turn, lower, upper, _ = carry
        return (turn < 1 + try_cap) | ((turn < turns) & (lower < upper).any())

    def step(carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        turn, lower, upper, fails = carry  # 0 and the cap come first: where they decide, both ends stay together
        is_cap = (turn == 1) & try_cap
        middle = jnp.where(turn == 0, 0, jnp.where(is_cap, upper, (lower + upper) / 2))
        costs = cost(middle)
        feasible = costs[0] <= threshold[0]
        for j in range(1, len(costs)):
            feasible = feasible & (costs[j] <= threshold[j])
        fails = fails | (is_cap & ~feasible)
        return turn + 1, jnp.where(feasible, lower, middle), jnp.where(feasible, middle, upper), fails

    start = mark_varying((jnp.zeros((), jnp.int32), jnp.zeros_like(cap), cap, jnp.zeros(cap.shape, bool)))
    _, _, multiplier, fails = jax.lax.while_loop(unsettled, step, start)
    return multiplier, fails
