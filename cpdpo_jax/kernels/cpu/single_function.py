"""A whole loop as one function of machine code: XLA's CPU runtime else runs it as a hundred, passed between threads."""

from __future__ import annotations

from typing import Any

import jax
import jax.extend
from jax.experimental.xla_metadata import set_xla_metadata

from cpdpo_jax.kernels.cpu.switch import cpu_acceleration_enabled


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
    if not cpu_acceleration_enabled() or not plain:
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
