"""A whole loop as one function of machine code: XLA's CPU runtime else runs it as a hundred, passed between threads."""

from __future__ import annotations

import enum
import math
from typing import Any

import jax
import jax.core
import jax.extend
from jax.experimental.xla_metadata import set_xla_metadata

from cpdpo_jax.kernels.cpu.switch import cpu_acceleration_enabled


def single_cpu_function(loop: Any, carry: Any) -> tuple[Any, Any]:
    """loop(carry), which XLA's CPU compiler makes one function of, not a hundred that two threads pass to each other.

    Blocks have a thread each; inside of one there is nothing to share. The attributes are those that XLA itself gives
    to small loops; elsewhere, and around what has no code inside a function (most operations that are not elementwise,
    constants of more than `LARGEST_CONSTANT` bytes), nothing is done.
    Returns also what the loop reads, and the program must return it: the compiler gives up (and the process with it)
    on an argument that it finds unused.
    """
    leaves, structure = jax.tree.flatten(carry)
    traced = jax.make_jaxpr(lambda *leaves: jax.tree.leaves(loop(jax.tree.unflatten(structure, leaves))))(*leaves)

    @jax.jit
    def inside(reads: list[jax.Array], leaves: list[jax.Array]) -> tuple[list[jax.Array], list[jax.Array]]:
        with set_xla_metadata(inlineable="true"):
            return jax.extend.core.jaxpr_as_fun(jax.extend.core.ClosedJaxpr(traced.jaxpr, reads))(*leaves), reads

    if not cpu_acceleration_enabled() or not all(array.size for array in leaves) or not _takes(traced):
        return jax.tree.unflatten(structure, jax.extend.core.jaxpr_as_fun(traced)(*leaves)), []
    with set_xla_metadata(xla_cpu_small_call="true", inlineable="false"):
        results, reads = inside(traced.consts, leaves)
    return jax.tree.unflatten(structure, results), reads


def one_function(program: Any, arguments: list[jax.Array]) -> Any:
    """What a traced program makes of its arguments, as one function of machine code, or as it is if that can not be.

    As for a loop, what it reads is returned and in use afterwards, if only by a barrier, which costs nothing.
    """
    function = jax.extend.core.jaxpr_as_fun(program)

    @jax.jit
    def inside(arguments: list[jax.Array]) -> Any:
        with set_xla_metadata(inlineable="true"):
            return function(*arguments), arguments

    if not all(array.size for array in arguments) or not _takes(program):
        return function(*arguments)
    with set_xla_metadata(xla_cpu_small_call="true", inlineable="false"):
        answer = inside(arguments)
    return jax.lax.optimization_barrier(answer)[0]


def takes_operation(equation: Any) -> bool:
    """Whether XLA's CPU compiler has code for an operation inside one function, whatever it reads."""
    try:
        _check(equation, [_Kind.VARYING] * len(equation.invars))
    except (_Refused, KeyError, AttributeError):
        return False
    return not any(hasattr(atom, "val") and atom.aval.size > 1 for atom in equation.invars)


LARGEST_CONSTANT = 8192  # bytes; XLA keeps those above some 10,000 outside of functions, then looks for them in vain

_WORDS = """abs add and broadcast_in_dim clamp concatenate cond convert_element_type cumsum custom_jvp_call
custom_vmap_call div dynamic_slice dynamic_update_slice eq exp ge gt integer_pow iota is_finite jit le log lt max min
mul ne neg not or pow reduce_or reshape rev scan scatter select_n shift_left shift_right_logical sign slice sqrt
squeeze stack sub transpose while xor"""
_PLAIN = frozenset(_WORDS.split())  # operations that are elementwise or only move data: all of CPD-PO's


class _Refused(Exception):
    """Something that one function can not have inside."""


class _Kind(enum.IntEnum):
    """What the compiler knows of a value; it computes with the constants itself, and keeps the results."""

    VARYING = 0
    SPREAD = 1  # one number, or few, repeated: never written out
    CONSTANT = 2


def _takes(traced: Any) -> bool:
    """Whether XLA's CPU compiler has code for all of a program inside one function. The process ends with it else."""
    try:
        _walk(traced.jaxpr, traced.consts, [_Kind.VARYING] * len(traced.jaxpr.invars))
    except (_Refused, KeyError, AttributeError):  # the latter two: a jax that describes its programs otherwise
        return False
    return True


def _walk(jaxpr: Any, consts: Any, arguments: list[_Kind]) -> list[_Kind]:
    """What is known of a program's results; raises `_Refused`."""
    kinds = dict(zip(jaxpr.invars, arguments, strict=True))
    for variable, value in zip(jaxpr.constvars, consts or [None] * len(jaxpr.constvars), strict=True):
        if not variable.aval.size:
            raise _Refused
        kinds[variable] = _Kind.VARYING if isinstance(value, jax.core.Tracer) else _constant(variable.aval)

    def kind(atom: Any) -> _Kind:
        if not hasattr(atom, "val"):
            return kinds[atom]
        return _constant(atom.aval) if atom.aval.size > 1 else _Kind.SPREAD

    for equation in jaxpr.eqns:
        name, read = equation.primitive.name, [kind(atom) for atom in equation.invars]
        known = _check(equation, read)
        if _Kind.VARYING in read or name == "iota" or known:
            made = _Kind.VARYING
        else:
            made = _Kind.SPREAD if name == "broadcast_in_dim" else max(read, default=_Kind.VARYING)
        found = known[0] if name in ("jit", "custom_jvp_call") else [made] * len(equation.outvars)
        for variable, result in zip(equation.outvars, found, strict=True):
            kinds[variable] = _constant(variable.aval) if result is _Kind.CONSTANT else result
    return [kind(atom) for atom in jaxpr.outvars]


def _check(equation: Any, read: list[_Kind]) -> list[list[_Kind]]:
    """What is known of the results of the programs inside an operation; raises `_Refused`."""
    name = equation.primitive.name
    if name not in _PLAIN or (name == "scatter" and not _is_one_window(equation)):
        raise _Refused
    return [_walk(*inner) for inner in _inner(equation, read)]


def _constant(aval: Any) -> _Kind:
    """An array that the program holds: if it is not too large."""
    if aval.size * aval.dtype.itemsize > LARGEST_CONSTANT:
        raise _Refused
    return _Kind.CONSTANT


def _is_one_window(equation: Any) -> bool:
    """A scatter that replaces one window, which becomes a `dynamic_update_slice`; for others there is no code."""
    return math.prod(equation.invars[1].aval.shape[:-1]) == 1


def _inner(equation: Any, read: list[_Kind]) -> list[tuple[Any, Any, list[_Kind]]]:
    """The programs inside an operation: (jaxpr, constants, what is known of its arguments)."""
    name, of = equation.primitive.name, equation.params
    if name == "while":
        of_condition, of_body = of["cond_nconsts"], of["cond_nconsts"] + of["body_nconsts"]
        known = {"cond_jaxpr": read[:of_condition], "body_jaxpr": read[of_condition:of_body]}
    elif name == "scan":
        constants = (
            of["num_consts"] if "num_consts" in of else len(of["ft_in"].unpack()[0])
        )  # before jax 0.12, and since
        known = {"jaxpr": read[:constants]}
    elif name == "cond":
        known = {"branches": read[1:]}
    else:
        known = {key: read for key in ("jaxpr", "call_jaxpr")}
    found = []
    for key, value in of.items():
        for inner in jax.tree.leaves(value, is_leaf=lambda one: hasattr(one, "eqns")):
            if hasattr(inner, "eqns"):
                jaxpr, consts = (inner.jaxpr, inner.consts) if hasattr(inner, "consts") else (inner, ())
                first = known.get(key, [])
                found.append((jaxpr, consts, [*first, *[_Kind.VARYING] * (len(jaxpr.invars) - len(first))]))
    return found
