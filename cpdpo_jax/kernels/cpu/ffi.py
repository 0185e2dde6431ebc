"""The wide kernels on a CPU: numba's functions of `sorted_form`, called from inside XLA's program.

They are handed to XLA through its C interface (`jax.ffi`): the handlers read the call frame of XLA's c_api.h.
`choice.compiled_kernel` says where this path is used; `occupancy` and `bonus` have a pure JAX form as well.
"""

from __future__ import annotations

import functools
import re
import zlib
from pathlib import Path
from typing import Any

import jax
import numpy as np
from llvmlite import ir
from numba import carray, cfunc, njit, types  # pyright: ignore[reportPrivateImportUsage]
from numba.extending import intrinsic

from cpdpo_jax.kernels.cpu import sorted_form, vector
from cpdpo_jax.kernels.cpu.sorted_form import dilated_bonus as _dilated_bonus
from cpdpo_jax.kernels.cpu.sorted_form import occupancy_bounds as _occupancy_bounds
from cpdpo_jax.kernels.cpu.switch import warn_once

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
def _words(address, n):
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
    extension = _words(frame[1], 4)
    if extension[0] < _EXTENSION or np.int32(extension[1]) != 1:  # XLA_FFI_Extension_Metadata
        return False
    metadata = _words(extension[3], 4)
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
    create = _words(frame[2], 7)[6]  # XLA_FFI_Api: size, extension, version (3), internal, XLA_FFI_Error_Create
    error = _call(create, arguments.ctypes.data)  # pyright: ignore[reportCallIssue]
    text[0] = arguments[1]  # both arrays are alive until here
    return error


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
        if _is_query(frame):
            return 0
        if not _is_known(frame):
            return _refusal(frame)
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
        if _is_query(frame):
            return 0
        if not _is_known(frame):
            return _refusal(frame)
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


def runtime_version() -> tuple[int, int]:
    """(major, minor) of the C interface of the jaxlib that is installed, as its header says."""
    header = Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h"
    text = header.read_text(encoding="utf-8", errors="replace")
    found = [re.search(rf"^#define XLA_FFI_API_{part} (\d+)", text, re.MULTILINE) for part in ("MAJOR", "MINOR")]
    if None in found:
        raise RuntimeError(f"{header} does not say its version")
    major, minor = (int(match[1]) for match in found if match)
    return major, minor


def prepare(name: str, dtype: np.dtype) -> Any:
    """The kernel of that name, compiled for a precision: raises whatever stands in its way."""
    if runtime_version() not in KNOWN:
        known = " and ".join(f"{major}.{minor}" for major, minor in KNOWN)
        installed = ".".join(map(str, runtime_version()))
        raise RuntimeError(f"XLA's C interface is version {installed}, these kernels know {known}")
    _target(name, dtype)
    return {"occupancy_bounds": occupancy_bounds, "dilated_bonus": dilated_bonus}[name]


@functools.cache
def _target(name: str, dtype: np.dtype) -> str:
    """Compile a handler for a precision, and make it known to XLA; its name there."""
    handler = _HANDLERS[name](np.float32 if dtype == np.float32 else np.float64, _source())
    compiled = _compiled(handler)
    _KEPT.append(compiled)
    target = f"cpdpo_jax_{name}_{dtype}"
    jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(compiled.ctypes), platform="cpu")
    return target


def _compiled(handler: Any) -> Any:
    """The machine code, from numba's cache if it can be used: one that is not writable or damaged must not hinder."""
    signature = types.int64(types.int64)
    try:
        return cfunc(signature, cache=True)(handler)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        warn_once(
            "cache",
            f"numba's cache can not be used ({reason}), so the kernels of wide layers are compiled anew in every "
            "process; set NUMBA_CACHE_DIR to a directory that can be written, or empty the one that is used.",
        )
        return cfunc(signature)(handler)


_HANDLERS = {"occupancy_bounds": _occupancy_handler, "dilated_bonus": _bonus_handler}
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
