"""Two inner loops for `sorted_form`, as explicit vector code: numba's own vectorisation of them is 3 to 5 times slower.

numba can not say that arrays do not overlap, so it reads and writes running sums in every step; here they stay in
registers. Arrays are C-contiguous and their last axis is a multiple of `VECTOR`.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

VECTOR = 16  # elements of one vector value; the compiler cuts it to what the CPU has

_WORD, _INDEX = ir.IntType(64), ir.IntType(32)


class _Code:
    """Vector operations on the arrays that an intrinsic was given."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Any, width: int = VECTOR):
        self.builder, self.width = builder, width
        self.arrays: list[Any] = [
            context.make_array(kind)(context, builder, value) if isinstance(kind, types.Array) else None
            for kind, value in zip(signature.args, args, strict=True)
        ]
        self.bytes = [kind.dtype.bitwidth // 8 if isinstance(kind, types.Array) else 0 for kind in signature.args]

    def length(self, array: int) -> Any:
        """Of the last axis."""
        return cgutils.unpack_tuple(self.builder, self.arrays[array].shape)[-1]

    def scalar(self, array: int, at: Any) -> Any:
        return self.builder.load(self.builder.gep(self.arrays[array].data, [at]))

    def _place(self, array: int, at: Any) -> Any:
        pointer = self.builder.gep(self.arrays[array].data, [at])
        element = self.arrays[array].data.type.pointee
        return self.builder.bitcast(pointer, ir.VectorType(element, self.width).as_pointer())

    def load(self, array: int, at: Any) -> Any:
        value = self.builder.load(self._place(array, at))
        value.align = self.bytes[array]
        return value

    def store(self, value: Any, array: int, at: Any) -> None:
        self.builder.store(value, self._place(array, at)).align = self.bytes[array]

    def splat(self, value: Any) -> Any:
        kind = ir.VectorType(value.type, self.width)
        nothing = ir.Constant(kind, ir.Undefined)
        first = self.builder.insert_element(nothing, value, ir.Constant(_INDEX, 0))
        zeros = ir.Constant(ir.VectorType(_INDEX, self.width), [0] * self.width)
        return self.builder.shuffle_vector(first, nothing, zeros)

    def multiply_add(self, x: Any, y: Any, z: Any) -> Any:
        return self.builder.fadd(self.builder.fmul(x, y, flags=("contract",)), z, flags=("contract",))

    def variable(self, array: int) -> tuple[Any, Any]:
        """A vector that changes along a loop, and zero; the array says of what kind."""
        kind = ir.VectorType(self.arrays[array].data.type.pointee, self.width)
        return cgutils.alloca_once(self.builder, kind), ir.Constant(kind, [0] * self.width)


@intrinsic
def ranks(typingctx: Any, f: Any, row: Any, n: Any, rank: Any) -> Any:
    """rank[row,j] = place of f[row,j] among f[row,:n], largest first, ties in order; [rows, padded], rank int32."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = _Code(context, builder, signature, args)
        count, zero = code.variable(3)
        places = ir.Constant(zero.type, list(range(VECTOR)))
        width = code.length(3)
        start = builder.mul(args[1], width)
        with cgutils.for_range_slice(builder, ir.Constant(_WORD, 0), width, ir.Constant(_WORD, VECTOR)) as (j, _):
            here = code.load(0, builder.add(start, j))
            place = builder.add(places, code.splat(builder.trunc(j, _INDEX)))
            builder.store(zero, count)
            with cgutils.for_range(builder, args[2]) as loop:
                other = code.splat(code.scalar(0, builder.add(start, loop.index)))
                earlier = builder.icmp_signed("<", code.splat(builder.trunc(loop.index, _INDEX)), place)
                tie = builder.and_(builder.fcmp_ordered("==", other, here), earlier)
                first = builder.or_(builder.fcmp_ordered(">", other, here), tie)
                builder.store(builder.add(builder.load(count), builder.zext(first, zero.type)), count)
            code.store(builder.load(count), 3, builder.add(start, j))
        return context.get_dummy_value()

    return types.void(f, row, n, rank), codegen


@intrinsic
def fill(
    typingctx: Any, lower: Any, spread: Any, slack: Any, order: Any, value: Any, step: Any, row: Any, n: Any, best: Any
) -> Any:
    """For order, value and step at `row`: best[row,p] =
    sum_i value[i] lower[order[i],p] + step[i] min(slack[p], spread[order[0],p] + ... + spread[order[i],p]).

    lower and spread [S,P], slack [P], order, value and step [rows, padded], best [rows,P].
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = _Code(context, builder, signature, args)
        n_pairs = code.length(2)
        (room, zero), (filled, _), (placed, _) = (code.variable(2) for _ in range(3))
        start, out = builder.mul(args[6], code.length(3)), builder.mul(args[6], n_pairs)
        with cgutils.for_range_slice(builder, ir.Constant(_WORD, 0), n_pairs, ir.Constant(_WORD, VECTOR)) as (p, _):
            slack_here = code.load(2, p)
            for variable in (room, filled, placed):
                builder.store(zero, variable)
            with cgutils.for_range(builder, args[7]) as loop:
                i = builder.add(start, loop.index)
                at = builder.add(builder.mul(builder.sext(code.scalar(3, i), _WORD), n_pairs), p)
                total = builder.fadd(builder.load(room), code.load(1, at))
                builder.store(total, room)
                taken = builder.select(builder.fcmp_ordered("<", total, slack_here), total, slack_here)
                step_here = code.splat(code.scalar(5, i))
                builder.store(code.multiply_add(step_here, taken, builder.load(filled)), filled)
                value_here = code.splat(code.scalar(4, i))
                builder.store(code.multiply_add(value_here, code.load(0, at), builder.load(placed)), placed)
            code.store(builder.fadd(builder.load(filled), builder.load(placed)), 8, builder.add(out, p))
        return context.get_dummy_value()

    return types.void(lower, spread, slack, order, value, step, row, n, best), codegen
