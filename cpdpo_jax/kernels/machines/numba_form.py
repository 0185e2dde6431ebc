"""numba's forms of kernels with the signatures of the paper's forms and rules for `jax.vmap` and derivatives."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels.machines.numba import calls

Arguments = Callable[..., tuple[Any, ...]]  # converts the arguments of the paper's form to those of numba's kernel


def _with_lanes(array: jax.Array, lanes: int, dtype: Any) -> jax.Array:
    return jnp.broadcast_to(array, (*array.shape[:-1], lanes)).astype(dtype)


def _all_lanes(policy: jax.Array, *arrays: jax.Array) -> tuple[jax.Array, ...]:
    """All arrays broadcast to the same number of lanes and converted to the same floating-point type."""
    dtype = jnp.result_type(policy, *arrays)
    lanes = max(array.shape[-1] if jnp.ndim(array) else 1 for array in (policy, *arrays))
    return tuple(_with_lanes(jnp.atleast_1d(array), lanes, dtype) for array in (policy, *arrays))


def _with_inverse(counts: Any, visits: Any, policy: Any, payoff: Any, ceiling: Any) -> tuple[Any, ...]:
    lanes = policy.shape[-1]
    return counts, 1 / visits, policy, _with_lanes(payoff, lanes, policy.dtype), ceiling


_ARGUMENTS: dict[str, Arguments] = {
    "occupancy_bounds": _all_lanes,
    "truncated_evaluation": _with_inverse,
}


def find(paper: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[..., Any] | None:
    """numba's form of a kernel for these arguments, with compiled machine code; None if it cannot be used."""
    arrays = jax.eval_shape(_numba_arguments(paper.__name__), *arguments)
    call = calls.find(paper.__name__, *arrays)
    return None if call is None else _form(call, paper)


def _numba_arguments(name: str) -> Arguments:
    convert = _ARGUMENTS.get(name, lambda *arrays: arrays)
    return lambda *arguments: tuple(array for array in convert(*arguments) if array is not None)


@functools.cache
def _form(call: Callable[..., tuple[Any, ...]], paper: Callable[..., Any]) -> Callable[..., Any]:
    """`call` with the signature of `paper`, which replaces it under `jax.vmap` and differentiation."""
    convert = _numba_arguments(paper.__name__)

    def results(*arguments: Any) -> Any:
        outputs = call(*convert(*arguments))
        if paper.__name__ == "count_episode" and arguments[-1] is None:
            return *outputs, None
        return outputs[0] if len(outputs) == 1 else outputs

    mappable = jax.custom_batching.custom_vmap(results)

    @mappable.def_vmap
    def _(size: int, is_mapped: Any, *arguments: Any) -> Any:
        axes = [jax.tree.map(lambda mapped: 0 if mapped else None, mapped) for mapped in is_mapped]
        mapped = jax.vmap(paper, in_axes=axes)(*arguments)
        return mapped, jax.tree.map(lambda _: True, mapped)

    form = jax.custom_jvp(mappable)

    @form.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        return jax.jvp(paper, primals, tangents)

    return functools.wraps(paper)(form)
