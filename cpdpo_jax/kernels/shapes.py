"""Static shape checks of kernel arguments, made at trace time: they cost nothing at run time."""

from __future__ import annotations

from typing import Any

import chex
import jax.numpy as jnp

Axes = tuple[int | None, ...]  # sizes of the problem's axes; None for any size


def batch_shape(rank: int, **arrays: tuple[Any, Axes]) -> tuple[int, ...]:
    """The common trailing shape of named arguments, each given with the sizes its leading axes must have.

    `rank` is the number of trailing batch axes that every argument must have (usually the policy's); size 1
    broadcasts. Raises a ValueError that names the argument.
    """
    for name, (array, axes) in arrays.items():
        try:
            chex.assert_rank(array, len(axes) + rank)
        except AssertionError:
            raise ValueError(
                f"{name} of shape {jnp.shape(array)} has {jnp.ndim(array) - len(axes)} trailing batch axes where "
                f"{rank} are expected; give every argument the same number (size 1 broadcasts)."
            ) from None
        try:
            chex.assert_shape(array, (*axes, ...))
        except AssertionError:
            raise ValueError(
                f"{name} has shape {jnp.shape(array)}, but its leading axes must be {_format_axes(axes)} to match the "
                "other arguments."
            ) from None
    trailing = {name: jnp.shape(array)[len(axes) :] for name, (array, axes) in arrays.items()}
    try:
        return jnp.broadcast_shapes(*trailing.values())
    except ValueError:
        listed = ", ".join(f"{name} {shape}" for name, shape in trailing.items())
        raise ValueError(f"the trailing batch axes do not broadcast: {listed}; make their sizes equal or 1.") from None


def per_lane(value: Any, ndim: int) -> Any:
    """A value per lane, [*B], with leading axes of size 1 so that it has `ndim` axes; a scalar stays a scalar."""
    if jnp.ndim(value) == 0:
        return value
    value = jnp.asarray(value)
    return value.reshape((1,) * (ndim - value.ndim) + value.shape)


def _format_axes(axes: Axes) -> str:
    return "(" + ", ".join("any" if size is None else str(size) for size in axes) + ")"
