"""What does not change along a loop, computed once before it: XLA's GPU compiler leaves it in the loop, a kernel each.

Only what computes and makes nothing larger is taken out: slices and broadcasts cost nothing inside a kernel, and as
arrays of their own they would be read in every episode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.extend

_MOVES = frozenset(
    [
        "slice",
        "squeeze",
        "reshape",
        "broadcast_in_dim",
        "concatenate",
        "transpose",
        "iota",
        "pad",
        "expand_dims",
        "convert_element_type",
        "copy",
        "dynamic_slice",
        "gather",
        "optimization_barrier",
        "jit",
        "pjit",
        "closed_call",
        "custom_jvp_call",
        "while",
        "scan",
        "cond",
    ]
)


def hoisted(step: Callable[..., Any], fixed: Any, *varying: Any) -> Callable[..., Any]:
    """step(fixed, *varying) as a function of what varies, what depends on `fixed` alone computed here and now."""
    closed, shape = jax.make_jaxpr(step, return_shape=True)(fixed, *varying)
    jaxpr, leaves = closed.jaxpr, jax.tree.leaves(fixed)
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    known |= dict(zip(jaxpr.invars, leaves, strict=False))
    rest = []
    for equation in jaxpr.eqns:
        inputs = [atom.val if _is_literal(atom) else known.get(atom) for atom in equation.invars]
        if any(value is None for value in inputs) or not _worth_it(equation):
            rest.append(equation)
            continue
        made = equation.primitive.bind(*inputs, **equation.params)
        known |= dict(zip(equation.outvars, made if equation.primitive.multiple_results else [made], strict=True))

    unnamed = jaxpr.debug_info.with_unknown_names()
    body = jaxpr.replace(constvars=list(known), invars=jaxpr.invars[len(leaves) :], eqns=rest, debug_info=unnamed)
    call = jax.extend.core.jaxpr_as_fun(jax.extend.core.ClosedJaxpr(body, list(known.values())))
    structure = jax.tree.structure(shape)
    return lambda *varying: jax.tree.unflatten(structure, call(*jax.tree.leaves(varying)))


def _worth_it(equation: Any) -> bool:
    sizes = [getattr(atom.aval, "size", 0) for atom in equation.invars]
    return (
        equation.primitive.name not in _MOVES
        and not equation.effects
        and all(variable.aval.size <= max(sizes, default=0) for variable in equation.outvars)
    )


def _is_literal(atom: Any) -> bool:
    return isinstance(atom, jax.extend.core.Literal)
