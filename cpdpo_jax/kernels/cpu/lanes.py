"""Sixteen lanes as one value in numba's code: loads, stores and arithmetic that stay in a register.

numba can not say that arrays do not overlap, so it keeps running sums in memory and reads them in every step. A value
of type `Lanes` is an LLVM vector: the compiler cuts it to what the CPU has, and a lane's bits do not depend on the
lanes beside it.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils
from numba.extending import models, register_model

LANES = 16

intrinsic: Any = extending.intrinsic  # what it makes is called without the first argument

_INDEX = ir.IntType(32)


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
    """Elements at..at+15 of an array's memory."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.load(_place(context, builder, signature.args[0], *args))
        value.align = signature.args[0].dtype.bitwidth // 8
        return value

    return Lanes(array.dtype)(array, types.int64), codegen


@intrinsic
def load_counts(typingctx: Any, array: Any, at: Any, like: Any) -> Any:
    """Elements at..at+15 of an array of whole numbers, as the type of the array `like`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.load(_place(context, builder, signature.args[0], args[0], args[1]))
        value.align = signature.args[0].dtype.bitwidth // 8
        return builder.sitofp(value, ir.VectorType(_element(signature.args[2].dtype), LANES))

    return Lanes(like.dtype)(array, types.int64, like), codegen


@intrinsic
def store(typingctx: Any, value: Any, array: Any, at: Any) -> Any:
    """Write elements at..at+15 of an array's memory."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(context, builder, signature.args[1], args[1], args[2])
        builder.store(args[0], place).align = signature.args[1].dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(value, array, types.int64), codegen


@intrinsic
def spread(typingctx: Any, array: Any, at: Any) -> Any:
    """Element `at` of an array's memory in all lanes."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return _splat(builder, builder.load(builder.gep(data, [args[1]])))

    return Lanes(array.dtype)(array, types.int64), codegen


@intrinsic
def zero(typingctx: Any, array: Any) -> Any:
    """0 in all lanes, of the type of an array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(ir.VectorType(_element(signature.args[0].dtype), LANES), [0.0] * LANES)

    return Lanes(array.dtype)(array), codegen


@intrinsic
def fill(typingctx: Any, number: Any, array: Any) -> Any:
    """A number in all lanes, of the type of an array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        element = context.cast(builder, args[0], signature.args[0], signature.args[1].dtype)
        return _splat(builder, element)

    return Lanes(array.dtype)(number, array), codegen


def _operation(name: str) -> Any:
    """An instruction of two values."""

    @intrinsic
    def operation(typingctx: Any, x: Any, y: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return getattr(builder, name)(*args)

        return x(x, y), codegen

    return operation


def _choice(sign: str) -> Any:
    """x where `x sign y`, else y: also where one of them is no number."""

    @intrinsic
    def choice(typingctx: Any, x: Any, y: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.select(builder.fcmp_ordered(sign, *args), *args)

        return x(x, y), codegen

    return choice


add, multiply, divide = _operation("fadd"), _operation("fmul"), _operation("fdiv")
smaller, larger = _choice("<"), _choice(">")


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
    """min(max(x, low), high); what is no number stays none."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, low, high = args
        x = builder.select(builder.fcmp_ordered("<", x, low), low, x)
        return builder.select(builder.fcmp_ordered(">", x, high), high, x)

    return x(x, low, high), codegen
