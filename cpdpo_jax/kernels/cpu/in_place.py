"""Arrays that are changed where they lie, inside a loop over episodes.

XLA's CPU compiler copies an array of a loop's state unless it can prove that nobody reads the old entries once the new
ones are written, and the one order it believes in is that of data: what is made of what. `lax.cond` hands back a copy
of what it did not change, a cheap sum is computed again by each of its readers from the old entries, and a barrier is
gone before the copies are placed. A loop of at most one turn has that order: it comes after all that it is handed and
before all that reads its results, and its body writes in place. CPD-PO at 5 x 5 x 3 copied half a megabyte an episode
(64 lanes), a sixth of its time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels.cpu.choice import with_rules
from cpdpo_jax.kernels.cpu.switch import cpu_acceleration_enabled

FEW_LANES = 16
Change = Callable[[Any, Any], Any]  # the new state of (state, reads); it closes over no traced array


def stored(array: jax.Array) -> jax.Array:
    """The array, made once and written down: XLA else makes a cheap one again in each of its readers."""
    if not cpu_acceleration_enabled() or not array.size:
        return array
    return changed(lambda _, array: array, jnp.zeros_like(array), array)


def exponential(array: jax.Array) -> jax.Array:
    """exp(array), of few lanes in one long loop: LLVM unrolls a loop over 16 before it would make vectors of it."""
    if not cpu_acceleration_enabled() or not array.size or array.shape[-1] > FEW_LANES:
        return jnp.exp(array)
    flat = array.reshape(-1)
    return changed(lambda _, flat: jnp.exp(flat), jnp.zeros_like(flat), flat).reshape(array.shape)


def changed(change: Change, state: Any, reads: Any) -> Any:
    """change(state, reads), in place. The last entry of what it reads must not be a constant of the program.

    Where accelerations for a CPU are off, under `jax.vmap` and under differentiation: the change and nothing else.
    """

    def plainly(_: jax.Array, state: Any, reads: Any, after: Any) -> Any:
        return change(state, reads), after

    one = jax.tree.leaves(reads)[-1].reshape(-1)[-1]
    always = (one >= 0) | (one < 0) | (one != one)  # true, which the compiler does not see
    return _either(plainly, change, always, state, reads, ())[0]


def changed_if(when: jax.Array, change: Change, state: Any, reads: Any, after: Any) -> Any:
    """(change(state, reads) if `when` else state, after): the state in place, once `after` has been made.

    `when` is one bool; `after` are arrays, made of the old state by all that reads it.
    Where accelerations for a CPU are off, under `jax.vmap` and under differentiation: a `lax.cond`.
    """

    def with_cond(when: jax.Array, state: Any, reads: Any, after: Any) -> Any:
        return jax.lax.cond(when, change, lambda state, _: state, state, reads), after

    return _either(with_cond, change, when, state, reads, after)


def _either(pure: Callable, change: Change, when: jax.Array, state: Any, reads: Any, after: Any) -> Any:
    if not cpu_acceleration_enabled():
        return pure(when, state, reads, after)
    leaves, structure = jax.tree.flatten((when, state, reads, after))

    def of_leaves(function: Callable) -> Callable[..., tuple[jax.Array, ...]]:
        return lambda *given: tuple(jax.tree.leaves(function(*structure.unflatten(given))))

    def loop(when: jax.Array, state: Any, reads: Any, after: Any) -> Any:
        def turn(carry: Any) -> Any:
            goes, state, after = carry
            kept = jax.tree.map(lambda one: jnp.where(goes, one, jnp.zeros_like(one)), after)  # not seen to be the same
            return jnp.zeros_like(goes), change(state, reads), kept

        return jax.lax.while_loop(lambda carry: carry[0], turn, (when, state, after))[1:]

    answer = with_rules(of_leaves(loop), of_leaves(pure))(*leaves)
    return jax.tree.structure((state, after)).unflatten(answer)
