"""Which form of the wide kernels a program gets: numba's code on a CPU, pure JAX elsewhere or when asked for.

The choice is made while a program is traced, from the number of states, and is part of what tells compiled programs
apart: `with pure_jax():` never meets a program made outside of it.
"""

from __future__ import annotations

import functools
import importlib
import math
from types import ModuleType
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata

from cpdpo_jax.kernels.loops import MAX_UNROLLED_STATES

_PURE = jax.make_user_context(False)


def pure_jax() -> Any:
    """A context in which every kernel is pure JAX: to compare the two, or to lower for a device that is not here."""
    return _PURE(True)


def compiled_kernels(n_states: int) -> ModuleType | None:
    """The module `compiled` where its kernels are the better ones, else None."""
    if n_states <= MAX_UNROLLED_STATES or _PURE.value or jax.default_backend() != "cpu":
        return None
    return _module()


@functools.cache
def _module() -> ModuleType | None:
    try:
        return importlib.import_module("cpdpo_jax.kernels.cpu.ffi")
    except (ImportError, RuntimeError):  # numba lags behind new Pythons, and wants a place to keep what it compiles
        return None


def over_lanes(kernel: Any, *arrays: tuple[jax.Array, int]) -> tuple[jax.Array, ...]:
    """Call a kernel, written for one trailing axis of lanes, on arrays given each with its number of problem axes."""
    dtype = jnp.result_type(*(array for array, _ in arrays))
    batch = jnp.broadcast_shapes(*(array.shape[axes:] for array, axes in arrays))

    def flat(array: jax.Array, axes: int) -> jax.Array:
        full = jnp.broadcast_to(array, (*array.shape[:axes], *batch))
        return full.astype(dtype).reshape(*array.shape[:axes], math.prod(batch))

    results = kernel(*(flat(array, axes) for array, axes in arrays))
    return tuple(result.reshape(*result.shape[:-1], *batch) for result in results)


def single_cpu_function(loop: Any, carry: Any) -> tuple[Any, Any]:
    """loop(carry), which XLA's CPU compiler makes one function of, not a hundred that two threads pass to each other.

    Blocks have a thread each; inside of one there is nothing to share. The attributes are those that XLA itself gives
    to small loops; elsewhere, and around operations that have no code inside a function, nothing is done.
    Returns also what the loop reads, and the program must return it: the compiler gives up (and the process with it)
    on an argument that it finds unused.
    """
    leaves, structure = jax.tree.flatten(carry)
    traced = jax.make_jaxpr(lambda *leaves: jax.tree.leaves(loop(jax.tree.unflatten(structure, leaves))))(*leaves)

    @jax.jit
    def inside(reads: list[jax.Array], leaves: list[jax.Array]) -> tuple[list[jax.Array], list[jax.Array]]:
        with set_xla_metadata(inlineable="true"):
            return jax.extend.core.jaxpr_as_fun(jax.extend.core.ClosedJaxpr(traced.jaxpr, reads))(*leaves), reads

    plain = _PLAIN.issuperset(_operations(traced.jaxpr)) and all(array.size for array in [*traced.consts, *leaves])
    if _PURE.value or jax.default_backend() != "cpu" or not plain:
        return jax.tree.unflatten(structure, jax.extend.core.jaxpr_as_fun(traced)(*leaves)), []
    with set_xla_metadata(xla_cpu_small_call="true", inlineable="false"):
        results, reads = inside(traced.consts, leaves)
    return jax.tree.unflatten(structure, results), reads


_WORDS = """abs add and broadcast_in_dim clamp concatenate cond convert_element_type cumsum custom_jvp_call div
dynamic_slice dynamic_update_slice eq exp ge gt integer_pow iota is_finite jit le log lt max min mul neg not or pow
reduce_or reshape rev scan scatter select_n shift_left shift_right_logical sign slice sqrt squeeze stack sub transpose
while xor"""
_PLAIN = frozenset(_WORDS.split())  # operations that are elementwise or only move data: all of CPD-PO's


def _operations(jaxpr: Any) -> set[str]:
    """The names of all operations in a program."""
    names = {equation.primitive.name for equation in jaxpr.eqns}
    for equation in jaxpr.eqns:
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda value: hasattr(value, "eqns")):
            if hasattr(inner, "eqns"):
                names |= _operations(inner)
    return names
