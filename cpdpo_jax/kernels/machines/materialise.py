"""`materialise`: compute arrays once, before anything reads them.

Without it, XLA recomputes a cheap array inside each of its readers and may round it differently there. It keeps lanes
bit-identical in blocks of 16, 32 and 64 lanes, and orders readers of an array before code that overwrites it.
"""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from cpdpo_jax.common.xla_options import jaxlib_version
from cpdpo_jax.kernels.machines.target import for_accelerator, only_paper_forms

Tree = TypeVar("Tree")

BARRIER_HOLDS = jaxlib_version() >= (0, 11)  # on a CPU


def materialise(tree: Tree) -> Tree:
    """The arrays of `tree` unchanged, computed once.

    Uses `lax.optimization_barrier`, or `_fence` with jaxlib 0.10, whose CPU compiler removes barriers before fusion.
    """
    leaves, structure = jax.tree.flatten(tree)
    if BARRIER_HOLDS or for_accelerator() or only_paper_forms() or not leaves or not all(leaf.size for leaf in leaves):
        return jax.lax.optimization_barrier(tree)
    return structure.unflatten(_fence(*leaves))


def opaque_false(array: jax.Array) -> jax.Array:
    """False, computed from an element of `array` so that XLA does not simplify it to a constant."""
    last = array.reshape(-1)[-1]
    return ~last & last if last.dtype == bool else (last < 0) & (last > 0)


def _looped(*leaves: jax.Array) -> tuple[jax.Array, ...]:
    """A loop of zero iterations with an opaque condition: XLA must compute what it carries beforehand."""
    return jax.lax.while_loop(
        lambda carry: carry[0],
        lambda carry: (jnp.zeros_like(carry[0]), *map(_altered, carry[1:])),
        (opaque_false(leaves[0]), *leaves),
    )[1:]


def _altered(leaf: jax.Array) -> jax.Array:
    return ~leaf if leaf.dtype == bool else -leaf if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf + 1


_mapped: Any = jax.custom_batching.custom_vmap(_looped)


@_mapped.def_vmap
def _(size: int, is_mapped: Any, *leaves: jax.Array) -> Any:
    return _fence(*leaves), tuple(is_mapped)


_fence: Any = jax.custom_jvp(lambda *leaves: _mapped(*leaves))


@_fence.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return _fence(*primals), tangents
