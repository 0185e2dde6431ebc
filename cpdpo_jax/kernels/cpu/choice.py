"""Which form of a kernel a program gets: numba's where it is the better one, else pure JAX; and how to call it."""

from __future__ import annotations

import functools
import importlib
import math
from typing import Any

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels.cpu.switch import VARIABLE, cpu_acceleration_enabled, warn_once
from cpdpo_jax.kernels.loops import written_out

WIDEST_OF_XLA = 7  # states; above, what `replaced_by` names is numba's (CPD-OPPO at 8 x 8 x 4: 0.72 of the time)
LANES = 16  # of a vector in `episode_form`, whose kernels take whole vectors only


def compiled_kernel(name: str, shape: tuple[int, ...], dtype: Any) -> Any:
    """The function `name` of `ffi` where it is the better form for (layers, states, actions), else None."""
    if written_out(shape) or not cpu_acceleration_enabled() or dtype not in (jnp.float32, jnp.float64):
        return None
    return _kernel(name, jnp.dtype(dtype))


def replaced_by(name: str, pure: Any, n_states: int, lanes: tuple[int, ...], dtype: Any) -> Any:
    """`pure`, or the function `name` of `ffi` in its place: the same arguments, each with the lanes as its last axis.

    `lanes` is the batch shape: one axis of whole vectors is what the kernels of `episode_form` take. Up to
    `WIDEST_OF_XLA` states XLA does it all in one function, which is as fast (CPD-OPPO at 5 x 5 x 3) or faster.
    Under `jax.vmap` and under differentiation it is `pure` again.
    """
    fits = n_states > WIDEST_OF_XLA and len(lanes) == 1 and lanes[0] % LANES == 0
    fits &= dtype in (jnp.float32, jnp.float64)
    kernel = _kernel(name, jnp.dtype(dtype)) if fits and cpu_acceleration_enabled() else None
    return pure if kernel is None else _replaced(kernel, pure)


def with_rules(kernel: Any, pure: Any) -> Any:
    """`kernel` of arrays, a tuple of arrays; under `jax.vmap` and under differentiation `pure`, which is the same."""
    mappable = jax.custom_batching.custom_vmap(lambda *arrays: tuple(kernel(*arrays)))

    @mappable.def_vmap
    def _(size: int, is_mapped: Any, *arrays: jax.Array) -> Any:
        results = jax.vmap(pure, in_axes=[0 if mapped else None for mapped in is_mapped])(*arrays)
        return results, (True,) * len(results)

    call = jax.custom_jvp(mappable)

    @call.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        return jax.jvp(pure, primals, tangents)

    return call


_replaced = functools.cache(with_rules)


def _kernel(name: str, dtype: Any) -> Any:
    """The function of `ffi` as it is now; None: it can not be used."""
    global _HANDED_OUT
    if not _prepared(name, dtype):
        return None
    _HANDED_OUT += 1
    return importlib.import_module("cpdpo_jax.kernels.cpu.ffi").call(name)


_HANDED_OUT = 0


def handed_out() -> int:
    """How often a kernel was handed to a program that was traced."""
    return _HANDED_OUT


@functools.cache
def _prepared(name: str, dtype: Any) -> bool:
    """Compiled here, so that whatever numba can not do shows before a program depends on it."""
    try:
        importlib.import_module("cpdpo_jax.kernels.cpu.ffi").prepare(name, dtype)
        return True
    except Exception as error:  # a numba that is missing, too old or without a compiler must not end a run
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        warn_once(
            "kernels",
            f"numba's kernels can not be used ({reason}), so everything runs in pure JAX: the same results up to "
            f"rounding, several times slower; install numba, or set {VARIABLE}=0 to say that this is meant.",
        )
        return False


def over_lanes(kernel: Any, pure: Any, *arrays: tuple[jax.Array, int]) -> tuple[jax.Array, ...]:
    """Call a kernel, written for one trailing axis of lanes, on arrays given each with its number of problem axes.

    `pure` is the same in pure JAX: machine code has no derivative, so it is what is differentiated.
    """
    dtype = jnp.result_type(*(array for array, _ in arrays))
    batch = jnp.broadcast_shapes(*(array.shape[axes:] for array, axes in arrays))

    def flat(array: jax.Array, axes: int) -> jax.Array:
        full = jnp.broadcast_to(array, (*array.shape[:axes], *batch))
        return full.astype(dtype).reshape(*array.shape[:axes], math.prod(batch))

    results = _differentiable(kernel, pure)(*(flat(array, axes) for array, axes in arrays))
    return tuple(result.reshape(*result.shape[:-1], *batch) for result in results)


@functools.cache
def _differentiable(kernel: Any, pure: Any) -> Any:
    """The kernel with a rule for `jax.jvp` and all that is made of it, `jax.grad` first."""
    call = jax.custom_jvp(_mappable(kernel))

    @call.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        return jax.jvp(pure, primals, tangents)

    return call


@functools.cache
def _mappable(kernel: Any) -> Any:
    """The kernel with a rule for `jax.vmap`: the mapped axis joins the lanes, and it stays one call."""
    call = jax.custom_batching.custom_vmap(lambda *arrays: tuple(kernel(*arrays)))

    @call.def_vmap
    def _(size: int, is_mapped: Any, *arrays: jax.Array) -> tuple[tuple[jax.Array, ...], tuple[bool, ...]]:
        def joined(array: jax.Array, mapped: bool) -> jax.Array:
            last = jnp.moveaxis(array, 0, -1) if mapped else jnp.broadcast_to(array[..., None], (*array.shape, size))
            return last.reshape(*last.shape[:-2], -1)

        results = call(*(joined(array, mapped) for array, mapped in zip(arrays, is_mapped, strict=True)))
        split = (result.reshape(*result.shape[:-1], -1, size) for result in results)
        return tuple(jnp.moveaxis(result, -1, 0) for result in split), (True,) * len(results)

    return call
