"""A program with foreign calls as few functions of machine code: all that lies between two calls becomes one.

XLA's CPU runtime else runs what is around numba's kernels as some dozens of small functions, each with its own
bookkeeping and its own pass over memory. Every operation gets the last place at which its results are in time, so that
as little as possible is handed from one function to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import jax
import jax.core
import jax.extend
import jax.extend.core
import numpy as np

from cpdpo_jax.kernels.cpu.single_function import LARGEST_CONSTANT, one_function, takes_operation
from cpdpo_jax.kernels.cpu.switch import cpu_acceleration_enabled


@dataclass(eq=False)
class _Value:
    """What an operation reads or makes."""

    array: Any = None  # known from the beginning: an argument, or a constant
    place: int = 0  # the first function that can read it
    varies: bool = False  # with the arguments: XLA can not compute it when it compiles

    @property
    def is_constant(self) -> bool:
        """Given by the program itself."""
        return self.array is not None and not isinstance(self.array, jax.core.Tracer)


@dataclass(eq=False)
class _Operation:
    equation: Any
    reads: list[_Value]
    makes: list[_Value]
    plain: bool
    place: int = 0  # plain: the function that it is in; foreign: the function that it follows
    needed: bool = False


def in_few_functions(function: Callable[..., Any]) -> Callable[..., Any]:
    """function(*arguments), a pytree of arrays of such; elsewhere than on an accelerated CPU `function` itself."""

    def run(*arguments: Any) -> Any:
        if not cpu_acceleration_enabled():
            return function(*arguments)
        leaves, structure = jax.tree.flatten(arguments)
        of_leaves = jax.make_jaxpr(lambda *given: function(*structure.unflatten(given)), return_shape=True)
        traced, shape = of_leaves(*leaves)
        try:
            results = _evaluated(traced, leaves)
        except (_Refused, AttributeError, KeyError, TypeError):  # the latter: a jax that describes programs otherwise
            results = jax.extend.core.jaxpr_as_fun(traced)(*leaves)  # not `function`: it was traced once
        return jax.tree.structure(shape).unflatten(results)

    return run


class _Refused(Exception):
    """There is no foreign call, or a function would be handed a constant: XLA ends the process on that."""


def _evaluated(traced: Any, leaves: list[Any]) -> list[Any]:
    """The results of a traced program."""
    operations: list[_Operation] = []
    results = _flat(traced.jaxpr, [_Value(one) for one in [*traced.consts, *leaves]], operations)
    kept = _placed(operations, results)
    reads = [read for operation in kept for read in operation.reads]
    too_large = any(read.is_constant and read.array.nbytes > LARGEST_CONSTANT for read in reads)
    if too_large or all(one.plain for one in kept) or not all(one.plain or one.makes[0].varies for one in kept):
        raise _Refused
    values = {read: read.array for read in reads if read.array is not None}
    values |= {result: result.array for result in results if result.array is not None}
    _evaluate(kept, results, values)
    return [values[result] for result in results]


def _flat(jaxpr: Any, arguments: list[_Value], operations: list[_Operation]) -> list[_Value]:
    """The program's operations one after the other, functions with foreign calls inside taken apart."""
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], arguments, strict=True))

    def value(atom: Any) -> _Value:
        return _Value(np.asarray(atom.val)) if hasattr(atom, "val") else values[atom]

    for equation in jaxpr.eqns:
        reads, plain = [value(atom) for atom in equation.invars], takes_operation(equation)
        if equation.primitive.name == "jit" and not plain:
            inner = equation.params["jaxpr"]
            makes = _flat(inner.jaxpr, [*map(_Value, inner.consts), *reads], operations)
        else:
            makes = [_Value() for _ in equation.outvars]
            operations.append(_Operation(equation, reads, makes, plain))
        values |= dict(zip(equation.outvars, makes, strict=True))
    return [value(atom) for atom in jaxpr.outvars]


def _placed(operations: list[_Operation], results: list[_Value]) -> list[_Operation]:
    """The operations that are needed, each with its place: first the earliest, then the latest possible."""
    wanted = set(results)
    for operation in reversed(operations):
        operation.needed = not wanted.isdisjoint(operation.makes)
        if operation.needed:
            wanted |= set(operation.reads)
    kept = [operation for operation in operations if operation.needed]
    for operation in kept:
        operation.place = max((one.place for one in operation.reads), default=0)
        for made in operation.makes:
            made.place = operation.place + (not operation.plain)
            made.varies = any(one.varies or isinstance(one.array, jax.core.Tracer) for one in operation.reads)
    last = max((made.place for operation in kept for made in operation.makes), default=0)
    latest: dict[_Value, int] = {}
    for operation in reversed(kept):
        if operation.plain:
            operation.place = min((latest.get(made, last) for made in operation.makes), default=last)
        for read in operation.reads:
            latest[read] = min(latest.get(read, last), operation.place)
    return kept


def _evaluate(operations: list[_Operation], results: list[_Value], values: dict[_Value, Any]) -> None:
    """Function by function, and the foreign calls that follow each."""
    for place in range(1 + max(operation.place for operation in operations)):
        inside = [operation for operation in operations if operation.plain and operation.place == place]
        calls = [operation for operation in operations if not operation.plain and operation.place == place]
        later = [operation for operation in operations if operation.place > place] + calls
        if inside:
            _run_function(inside, _used(later, results), values)
        for operation in calls:
            _run(operation, values)


def _used(operations: Iterable[_Operation], results: list[_Value]) -> set[_Value]:
    return {one for operation in operations for one in operation.reads} | set(results)


def _run_function(operations: list[_Operation], used: set[_Value], values: dict[_Value, Any]) -> None:
    """All of them as one function."""
    gives = [one for operation in operations for one in operation.makes if one in used]
    program, reads = _program(operations, gives)
    values |= dict(zip(gives, one_function(program, [values[one] for one in reads]), strict=True))


def _run(operation: _Operation, values: dict[_Value, Any]) -> None:
    """One operation by itself."""
    program, reads = _program([operation], operation.makes)
    results = jax.extend.core.jaxpr_as_fun(program)(*(values[one] for one in reads))
    values |= dict(zip(operation.makes, results, strict=True))


def _program(operations: list[_Operation], gives: list[_Value]) -> tuple[Any, list[_Value]]:
    """The operations as a program of their own, and what it reads; constants are part of it: XLA computes with them.

    What was traced is not traced again, it only gets new names: a function called twice has the same ones inside.
    """
    core, names = jax.extend.core, {}

    def name(value: _Value, atom: Any) -> Any:
        return names.setdefault(value, core.Var(atom.aval))

    equations = []
    for operation in operations:
        equation = operation.equation
        read = zip(operation.reads, equation.invars, strict=True)
        invars = [atom if hasattr(atom, "val") else name(value, atom) for value, atom in read]
        outvars = [name(value, atom) for value, atom in zip(operation.makes, equation.outvars, strict=True)]
        equations.append(equation.replace(invars=invars, outvars=outvars))
    made = {one for operation in operations for one in operation.makes}
    constants = [one for one in names if one.is_constant]
    reads = [one for one in names if one not in made and not one.is_constant]
    about = core.DebugInfo("operations", "between two calls", ("",) * len(reads), ("",) * len(gives))
    constvars, invars, outvars = ([names[one] for one in some] for some in (constants, reads, gives))
    jaxpr = core.Jaxpr(constvars, invars, outvars, equations, debug_info=about)
    return core.ClosedJaxpr(jaxpr, [one.array for one in constants]), reads
