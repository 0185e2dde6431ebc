"""Sums over very many episodes: float32 alone stops adding at 2^24."""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp

Tree = TypeVar("Tree")


def compensated_add(sums: Tree, carry: Tree, terms: Tree) -> tuple[Tree, Tree]:
    """Kahan's summation, leaf by leaf: (sums + terms, what that rounding lost).

    sums, carry and terms are pytrees of one structure; start with zeros for `sums` and `carry`, and hand back both.
    """
    added = jax.tree.map(jnp.subtract, terms, carry)
    total = jax.tree.map(jnp.add, sums, added)
    return total, jax.tree.map(lambda new, old, y: (new - old) - y, total, sums, added)
