"""Compensated sums over many episodes: plain float32 sums of ones stop growing at 2^24."""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp

Tree = TypeVar("Tree")


def compensated_add(sums: Tree, carry: Tree, terms: Tree) -> tuple[Tree, Tree]:
    """Kahan summation, leaf by leaf -> (sums + terms, rounding error).

    sums, carry and terms are pytrees of the same structure. Start `sums` and `carry` at zero and pass both results to
    the next call.
    """
    added = jax.tree.map(jnp.subtract, terms, carry)
    total = jax.tree.map(jnp.add, sums, added)
    return total, jax.tree.map(lambda new, old, y: (new - old) - y, total, sums, added)
