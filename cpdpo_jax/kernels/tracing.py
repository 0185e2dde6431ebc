"""Marks in traced code, for every target: arrays that are computed once, and loop carries that vary over devices."""

from __future__ import annotations

from typing import Any

import jax

from cpdpo_jax.kernels.machines.materialise import materialise

__all__ = ["mark_varying", "materialise"]


def mark_varying(tree: Any) -> Any:
    """The arrays of `tree`, marked as varying over devices inside `jax.shard_map`; unchanged elsewhere.

    A loop's carry depends on the lanes of its device, and jax requires that the initial carry is marked as well.
    """
    axes = frozenset(getattr(jax.sharding.get_abstract_mesh(), "manual_axes", ()))

    def marked(leaf: Any) -> Any:
        kind: Any = jax.typeof(leaf)
        marked_axes = getattr(kind, "vma", None)  # in some releases of jax, in others:
        if marked_axes is None:
            marked_axes = getattr(getattr(kind, "manual_axis_type", None), "varying", frozenset())
        missing = tuple(axes - marked_axes)
        return jax.lax.pcast(leaf, missing, to="varying") if missing else leaf

    return jax.tree.map(marked, tree) if axes else tree
