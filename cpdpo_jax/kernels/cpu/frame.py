"""Reading the call frames of XLA's C interface (`xla/ffi/api/c_api.h`) in numba's code."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import carray, njit, types  # pyright: ignore[reportPrivateImportUsage]
from numba.extending import intrinsic

VERSION = 0, 3  # (major, minor) of xla/ffi/api/c_api.h that the offsets here were written for: jaxlib 0.10
KNOWN = (VERSION, (0, 5))  # headers that were compared: what is used here lies where it did. 0.5: jaxlib 0.12
_ANSWER = VERSION[0] | VERSION[1] << 32  # both in one word, as XLA_FFI_Api_Version has them
_WORD = 8
_FRAME = 21 * _WORD  # XLA_FFI_CallFrame: size, extension, api, context, stage, args (5), rets (5), attrs (6)
_BUFFERS = 5 * _WORD  # XLA_FFI_Args and XLA_FFI_Rets: size, extension, count, types, pointers
_EXTENSION = 4 * _WORD  # XLA_FFI_Metadata_Extension: size, type, next, metadata
_METADATA = 4 * _WORD  # XLA_FFI_Metadata up to its version: size, (size, extension, major:minor)
_REFUSAL = np.frombuffer(b"cpdpo_jax: a call frame of XLA's C interface that it does not know\0", np.uint8)


@intrinsic
def _pointer(typingctx, address):
    """An integer as a pointer."""

    def codegen(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.voidptr(types.int64), codegen


@njit
def words(address, n):
    """n words of memory as int64."""
    return carray(_pointer(address), n, np.int64)  # pyright: ignore[reportCallIssue]


@intrinsic
def _call(typingctx, address, argument):
    """Call the C function at an address with one word; it answers with one."""

    def codegen(context, builder, signature, args):
        word = context.get_value_type(types.int64)
        kind = ir.FunctionType(word, [word]).as_pointer()
        return builder.call(builder.inttoptr(args[0], kind), [args[1]])

    return types.int64(types.int64, types.int64), codegen


@njit
def _is_query(frame):
    """XLA asks for the version of the interface before it calls, and refuses a handler whose version it does not serve.

    The answer is the version that this file was written for, not the runtime's own.
    """
    if frame[1] == 0:
        return False
    extension = words(frame[1], 4)
    if extension[0] < _EXTENSION or np.int32(extension[1]) != 1:  # XLA_FFI_Extension_Metadata
        return False
    metadata = words(extension[3], 4)
    if metadata[0] >= _METADATA:
        metadata[3] = _ANSWER
    return True


@njit
def _is_known(frame):
    """Whether a call frame is laid out as this file reads it."""
    return frame[0] >= _FRAME and frame[5] == _BUFFERS and frame[10] == _BUFFERS


@njit
def _refusal(frame):
    """An XLA_FFI_Error, made by the runtime."""
    text = _REFUSAL.copy()
    arguments = np.zeros(4, np.int64)
    arguments[0] = 3 * _WORD + 4  # XLA_FFI_Error_Create_Args: size, extension, message, code
    arguments[2] = text.ctypes.data
    arguments[3] = 12  # unimplemented
    create = words(frame[2], 7)[6]  # XLA_FFI_Api: size, extension, version (3), internal, XLA_FFI_Error_Create
    error = _call(create, arguments.ctypes.data)  # pyright: ignore[reportCallIssue]
    text[0] = arguments[1]  # both arrays are alive until here
    return error


@njit
def answered(frame):
    """What a handler must return at once, to a question of the runtime or to a frame it does not know; else -1."""
    if _is_query(frame):
        return 0
    return -1 if _is_known(frame) else _refusal(frame)


@njit
def data(buffers, i):
    """Where the data of the i-th buffer of XLA_FFI_Args or XLA_FFI_Rets are."""
    buffer = words(words(buffers, i + 1)[i], 4)  # struct_size, next, dtype, data
    return _pointer(buffer[3])  # pyright: ignore[reportCallIssue]


@njit
def shape(buffers, i):
    """The dimensions of the i-th buffer."""
    buffer = words(words(buffers, i + 1)[i], 6)  # ..., data, rank, dims
    return words(buffer[5], buffer[4])
