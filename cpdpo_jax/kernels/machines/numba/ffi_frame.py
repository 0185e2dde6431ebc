"""Reading the call frames of XLA's C interface (`xla/ffi/api/c_api.h`) in numba's code."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types  # pyright: ignore[reportPrivateImportUsage]
from numba.extending import intrinsic

VERSION = 0, 3  # (major, minor) of the header from which these offsets were taken: jaxlib 0.10
KNOWN = (VERSION, (0, 5))  # headers in which everything used here lies at the same offset; 0.5 is jaxlib 0.12
_ANSWER = VERSION[0] | VERSION[1] << 32  # both in one word, as in XLA_FFI_Api_Version
_WORD = 8
_FRAME = 21 * _WORD  # XLA_FFI_CallFrame: size, extension, api, context, stage, args (5), rets (5), attrs (6)
_BUFFERS = 5 * _WORD  # XLA_FFI_Args and XLA_FFI_Rets: size, extension, count, types, pointers
_ARGUMENTS, _RESULTS = 5, 10  # where they begin in a call frame
_EXTENSION = 4 * _WORD  # XLA_FFI_Metadata_Extension: size, type, next, metadata
_METADATA = 4 * _WORD  # XLA_FFI_Metadata up to its version: size, (size, extension, major:minor)
_REFUSAL = np.frombuffer(b"cpdpo_jax: unknown layout of a call frame of XLA's C interface\0", np.uint8)


@intrinsic
def _pointer(typingctx, address):
    """An integer as a pointer."""

    def codegen(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.voidptr(types.int64), codegen


@njit
def words(address: Any, n: Any) -> Any:
    """n words of memory as int64."""
    return carray(_pointer(address), n, np.int64)  # pyright: ignore[reportCallIssue]


@intrinsic
def _call(typingctx, address, argument):
    """Call the C function at an address with one word and return its word."""

    def codegen(context, builder, signature, args):
        word = context.get_value_type(types.int64)
        kind = ir.FunctionType(word, [word]).as_pointer()
        return builder.call(builder.inttoptr(args[0], kind), [args[1]])

    return types.int64(types.int64, types.int64), codegen


@njit
def answers_query(frame: Any) -> bool:
    """Answer XLA's query of the interface version, which precedes every call; False if the frame is no query.

    The answer is the version that this file was written for: XLA refuses a handler whose version it does not serve.
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
def has_buffers(frame: Any, arguments: Any, results: Any) -> bool:
    """Whether a call frame has the known layout and these buffers: tuples of (rank, XLA_FFI_DataType)."""
    if frame[0] < _FRAME:
        return False
    return _are(frame, _ARGUMENTS, arguments) and _are(frame, _RESULTS, results)


@njit
def _are(frame, start, expected):
    if frame[start] != _BUFFERS or frame[start + 2] != len(expected):
        return False
    for i in range(len(expected)):
        buffer = _buffer(frame, start, i)
        if buffer[4] != expected[i][0] or np.int32(buffer[2]) != expected[i][1]:
            return False
    return True


@njit
def _buffer(frame, start, i):
    """The i-th XLA_FFI_Buffer: size, extension, dtype, data, rank, dims."""
    return words(words(frame[start + 4], i + 1)[i], 6)


@njit
def argument(frame: Any, i: Any) -> Any:
    """The pointer to the data of argument i, and its dimensions."""
    buffer = _buffer(frame, _ARGUMENTS, i)
    return _pointer(buffer[3]), words(buffer[5], buffer[4])  # pyright: ignore[reportCallIssue]


@njit
def result(frame: Any, i: Any) -> Any:
    """The pointer to the data of result i, and its dimensions."""
    buffer = _buffer(frame, _RESULTS, i)
    return _pointer(buffer[3]), words(buffer[5], buffer[4])  # pyright: ignore[reportCallIssue]


@njit
def refusal(frame: Any) -> Any:
    """An XLA_FFI_Error, allocated by the runtime."""
    text = _REFUSAL.copy()
    arguments = np.zeros(4, np.int64)
    arguments[0] = 3 * _WORD + 4  # XLA_FFI_Error_Create_Args: size, extension, message, code
    arguments[2] = text.ctypes.data
    arguments[3] = 12  # XLA_FFI_Error_Code_UNIMPLEMENTED
    create = words(frame[2], 7)[6]  # XLA_FFI_Api: size, extension, version (3), internal, XLA_FFI_Error_Create
    error = _call(create, arguments.ctypes.data)  # pyright: ignore[reportCallIssue]
    text[0] = arguments[1]  # keeps both arrays alive until here
    return error
