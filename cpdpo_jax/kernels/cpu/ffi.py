"""The wide kernels on a CPU: numba's functions of `sorted_form`, called from inside XLA's program.

They are handed to XLA through its C interface (`jax.ffi`): the handlers read the call frame of XLA's c_api.h.
`_accelerate.compiled_kernels` says where this path is used; `occupancy` and `bonus` have a pure JAX form as well.
"""

from __future__ import annotations

import functools
import zlib
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numba import carray, cfunc, njit, types  # pyright: ignore[reportPrivateImportUsage]
from numba.extending import intrinsic

from cpdpo_jax.kernels.cpu import sorted_form, vector
from cpdpo_jax.kernels.cpu.sorted_form import dilated_bonus as _dilated_bonus
from cpdpo_jax.kernels.cpu.sorted_form import occupancy_bounds as _occupancy_bounds


@intrinsic
def _pointer(typingctx, address):
    """An integer as a pointer."""

    def codegen(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.voidptr(types.int64), codegen


@njit
def _words(address, n):
    """n words of memory as int64."""
    return carray(_pointer(address), n, np.int64)  # pyright: ignore[reportCallIssue]


@njit
def _is_query(frame):
    """XLA asks for the version of the interface before it calls: answer with its own."""
    if frame[1] == 0:
        return False
    extension = _words(frame[1], 4)  # struct_size, type, next, metadata
    if np.int32(extension[1]) != 1:  # XLA_FFI_Extension_Metadata
        return False
    metadata, runtime = _words(extension[3], 4), _words(frame[2], 5)  # both hold a version: (size, next, major:minor)
    metadata[3] = runtime[4]
    return True


@njit
def _data(buffers, i):
    """Where the data of the i-th buffer of XLA_FFI_Args or XLA_FFI_Rets are."""
    buffer = _words(_words(buffers, i + 1)[i], 4)  # struct_size, next, dtype, data
    return _pointer(buffer[3])  # pyright: ignore[reportCallIssue]


@njit
def _shape(buffers, i):
    """The dimensions of the i-th buffer."""
    buffer = _words(_words(buffers, i + 1)[i], 6)  # ..., data, rank, dims
    return _words(buffer[5], buffer[4])


def _occupancy_handler(kind, source):
    def handler(address):
        _ = source
        frame = _words(address, 15)  # args at 9, rets at 14
        if not _is_query(frame):
            n_layers, n_states, n_actions, n_lanes = _shape(frame[9], 0)
            pairs = (n_layers - 1, n_states, n_actions, n_lanes)
            box = (n_layers - 1, n_states, n_actions, n_states, n_lanes)
            _occupancy_bounds(
                carray(_data(frame[9], 0), (n_layers, n_states, n_actions, n_lanes), kind),
                carray(_data(frame[9], 1), box, kind),
                carray(_data(frame[9], 2), box, kind),
                carray(_data(frame[9], 3), pairs, kind),
                carray(_data(frame[9], 4), pairs, kind),
                carray(_data(frame[14], 0), (n_layers, n_states, n_lanes), kind),
                carray(_data(frame[14], 1), (n_layers, n_states, n_lanes), kind),
            )
        return 0  # no error

    return handler


def _bonus_handler(kind, source):
    def handler(address):
        _ = source
        frame = _words(address, 15)
        if not _is_query(frame):
            n_layers, n_states, n_actions, n_lanes = _shape(frame[9], 0)
            box = (n_layers - 1, n_states, n_actions, n_states, n_lanes)
            _dilated_bonus(
                carray(_data(frame[9], 0), (n_layers, n_states, n_actions, n_lanes), kind),
                carray(_data(frame[9], 1), (n_layers, n_states, n_lanes), kind),
                carray(_data(frame[9], 2), (n_lanes,), kind),
                carray(_data(frame[9], 3), box, kind),
                carray(_data(frame[9], 4), box, kind),
                carray(_data(frame[9], 5), (n_layers - 1, n_states, n_actions, n_lanes), kind),
                carray(_data(frame[14], 0), (n_layers, n_states, n_actions, n_lanes), kind),
            )
        return 0

    return handler


def _source() -> int:
    """A checksum of all that the handlers are made of: numba's cache sees changes of this file and of what is closed
    over, not of other files, and would go on with the old machine code.
    """
    return zlib.crc32(b"".join(Path(str(module.__file__)).read_bytes() for module in (sorted_form, vector)))


@functools.cache
def _target(name: str, dtype: np.dtype) -> str:
    """Compile a handler for a precision, and make it known to XLA; its name there."""
    make = {"occupancy_bounds": _occupancy_handler, "dilated_bonus": _bonus_handler}[name]
    handler = make(np.float32 if dtype == np.float32 else np.float64, _source())
    compiled = cfunc(types.int64(types.int64), cache=True)(handler)
    _KEPT.append(compiled)
    target = f"cpdpo_jax_{name}_{dtype}"
    jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(compiled.ctypes), platform="cpu")
    return target


_KEPT: list[Any] = []  # the machine code must outlive the programs that call it


def occupancy_bounds(policy, lower, spread, slack, excess):
    """All with one trailing axis B; see `occupancy.occupancy_bounds_in_box`."""
    bound = jax.ShapeDtypeStruct((*policy.shape[:2], policy.shape[3]), policy.dtype)
    call = jax.ffi.ffi_call(_target("occupancy_bounds", policy.dtype), (bound, bound), vmap_method="sequential")
    return call(policy, lower, spread, slack, excess)


def dilated_bonus(policy, bonus, dilation, lower, spread, slack):
    """All with one trailing axis B; see `bonus.dilated_bonus_in_box`."""
    result = jax.ShapeDtypeStruct(policy.shape, policy.dtype)
    call = jax.ffi.ffi_call(_target("dilated_bonus", policy.dtype), (result,), vmap_method="sequential")
    return call(policy, bonus, dilation, lower, spread, slack)
