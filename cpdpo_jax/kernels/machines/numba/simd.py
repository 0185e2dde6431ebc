"""Sixteen lanes as one value in numba's code: loads, stores and arithmetic that stay in a register.

numba cannot express that arrays do not overlap, so it keeps running sums in memory and reloads them in every step. A
value of type `Lanes` is an LLVM vector: the compiler splits it into the CPU's registers, and the bits of a lane do not
depend on its neighbours. The index `at` of every function counts elements of the array's memory (C order).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils
from numba.extending import models, register_model

from cpdpo_jax.kernels.machines.sizes import SIMD_LANES as LANES

intrinsic: Any = extending.intrinsic  # its functions are called without the first argument

_INDEX = ir.IntType(32)
_PLACES = ir.Constant(ir.VectorType(_INDEX, LANES), list(range(LANES)))


class Lanes(types.Type):
    """Sixteen numbers of one type."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"Lanes({dtype})")


def _element(dtype: Any) -> Any:
    return {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}[dtype]


@register_model(Lanes)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Lanes) -> None:
        super().__init__(manager, kind, ir.VectorType(_element(kind.dtype), LANES))


def _splat(builder: Any, value: Any) -> Any:
    kind = ir.VectorType(value.type, LANES)
    nothing = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(nothing, value, ir.Constant(_INDEX, 0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(_INDEX, LANES), [0] * LANES))


def _place(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    pointer = builder.gep(data, [at])
    return builder.bitcast(pointer, ir.VectorType(data.type.pointee, LANES).as_pointer())


@intrinsic
def load(typingctx: Any, array: Any, at: Any) -> Any:
    """Elements at..at+15 of an array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.load(_place(context, builder, signature.args[0], *args))
        value.align = signature.args[0].dtype.bitwidth // 8
        return value

    return Lanes(array.dtype)(array, types.int64), codegen


@intrinsic
def load_counts(typingctx: Any, array: Any, at: Any, like: Any) -> Any:
    """Elements at..at+15 of an integer array, converted to the type of the array `like`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.load(_place(context, builder, signature.args[0], args[0], args[1]))
        value.align = signature.args[0].dtype.bitwidth // 8
        return builder.sitofp(value, ir.VectorType(_element(signature.args[2].dtype), LANES))

    return Lanes(like.dtype)(array, types.int64, like), codegen


@intrinsic
def store(typingctx: Any, value: Any, array: Any, at: Any) -> Any:
    """Write elements at..at+15 of an array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(context, builder, signature.args[1], args[1], args[2])
        builder.store(args[0], place).align = signature.args[1].dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(value, array, types.int64), codegen


@intrinsic
def broadcast(typingctx: Any, array: Any, at: Any) -> Any:
    """Element `at` of an array in all lanes."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return _splat(builder, builder.load(builder.gep(data, [args[1]])))

    return Lanes(array.dtype)(array, types.int64), codegen


@intrinsic
def zero(typingctx: Any, array: Any) -> Any:
    """0 in all lanes, in the type of an array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(ir.VectorType(_element(signature.args[0].dtype), LANES), [0.0] * LANES)

    return Lanes(array.dtype)(array), codegen


@intrinsic
def constant(typingctx: Any, number: Any, array: Any) -> Any:
    """A number in all lanes, in the type of an array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        element = context.cast(builder, args[0], signature.args[0], signature.args[1].dtype)
        return _splat(builder, element)

    return Lanes(array.dtype)(number, array), codegen


def _operation(name: str) -> Any:
    """An instruction with two operands."""

    @intrinsic
    def operation(typingctx: Any, x: Any, y: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return getattr(builder, name)(*args)

        return x(x, y), codegen

    return operation


def _choice(sign: str) -> Any:
    """x where `x sign y`, else y; y if either is NaN."""

    @intrinsic
    def choice(typingctx: Any, x: Any, y: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.select(builder.fcmp_ordered(sign, *args), *args)

        return x(x, y), codegen

    return choice


add: Any = _operation("fadd")
multiply: Any = _operation("fmul")
divide: Any = _operation("fdiv")
smaller: Any = _choice("<")
larger: Any = _choice(">")


@intrinsic
def square_root(typingctx: Any, x: Any) -> Any:
    """The square root of x."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = args[0].type
        name = f"llvm.sqrt.v{LANES}{kind.element.intrinsic_name}"
        return builder.call(cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind]), name), args)

    return x(x), codegen


@intrinsic
def where_zero(typingctx: Any, x: Any, y: Any, z: Any) -> Any:
    """y where x is 0, else z."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered("==", args[0], ir.Constant(args[0].type, [0.0] * LANES)), *args[1:])

    return y(x, y, z), codegen


@intrinsic
def multiply_add(typingctx: Any, x: Any, y: Any, z: Any) -> Any:
    """x y + z, rounded once where the CPU can."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        product = builder.fmul(args[0], args[1], flags=("contract",))
        return builder.fadd(product, args[2], flags=("contract",))

    return x(x, y, z), codegen


@intrinsic
def clip(typingctx: Any, x: Any, low: Any, high: Any) -> Any:
    """min(max(x, low), high); NaN stays NaN."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, low, high = args
        x = builder.select(builder.fcmp_ordered("<", x, low), low, x)
        return builder.select(builder.fcmp_ordered(">", x, high), high, x)

    return x(x, low, high), codegen


@intrinsic
def element(typingctx: Any, array: Any, at: Any) -> Any:
    """Element `at` of an array, without numba's treatment of negative indices."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.load(builder.gep(data, [args[1]]))

    return array.dtype(array, types.int64), codegen


@intrinsic
def count_if_before(typingctx: Any, count: Any, y: Any, j: Any, x: Any, i: Any) -> Any:
    """count + 1 where y > x, or y = x and j < i: y precedes x in descending order, and ties keep their order.

    count and x are lanes of one type, y its scalar; the lanes of x have the indices i, ..., i+15 and y has j.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        count, y, j, x, i = args
        y = _splat(builder, y)
        places = builder.add(_splat(builder, builder.trunc(i, _INDEX)), _PLACES)
        earlier = builder.icmp_signed("<", _splat(builder, builder.trunc(j, _INDEX)), places)
        tie = builder.and_(builder.fcmp_ordered("==", y, x), earlier)
        before = builder.or_(builder.fcmp_ordered(">", y, x), tie)
        one = ir.Constant(count.type, [1.0] * LANES)
        return builder.select(before, builder.fadd(count, one), count)

    return count(count, x.dtype, types.int64, x, types.int64), codegen
