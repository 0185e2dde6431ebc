"""The numba kernels as functions of JAX arrays, called from inside XLA's program through its C interface (`jax.ffi`).

`find` is the only entry point. It returns a call whose machine code is compiled and registered, or None. This module
imports numba only when a kernel is requested.
"""

from __future__ import annotations

import importlib
import re
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from cpdpo_jax.common.notices import warn_once
from cpdpo_jax.kernels.machines.numba.specification import axis_sizes, parse, specialise
from cpdpo_jax.kernels.machines.sizes import SIMD_LANES

Call = Callable[..., tuple[jax.Array, ...]]

_LOCK = threading.RLock()  # threads that trace programs at the same time request the same kernels
_CALLS: dict[str, Call | None] = {}  # by specification
_HANDLERS: dict[str, Any] = {}  # by specification; machine code must outlive the programs that call it


def find(name: str, *arrays: Any) -> Call | None:
    """The kernel `name` for arrays of these types and shapes, which may be tracers or `jax.ShapeDtypeStruct`s.

    The kernels and their arrays, lanes last, are listed in `specification`. None if no form of the kernel takes such
    arrays; None with one RuntimeWarning per process if numba, the compiler or XLA's interface is not usable.
    """
    try:
        specification = specialise(name, arrays)
    except ValueError:
        return None
    with _LOCK:
        if specification not in _CALLS:  # an interrupted compilation leaves no entry
            _CALLS[specification] = _prepared(specification)
        return _CALLS[specification]


def describe() -> str:
    """Whether numba's kernels can be used here, tested with a small kernel."""
    lane = jax.ShapeDtypeStruct((1, 1, 1, SIMD_LANES), jax.numpy.float32)
    rows = jax.ShapeDtypeStruct((0, 1, 1, 1, 1), lane.dtype), lane, jax.ShapeDtypeStruct((1, 1, 1, 1, 1), lane.dtype)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call = find("root_value", *rows)
    return (
        "its kernels are used in wide layers" if call else f"not used: {[str(warning.message) for warning in caught]}"
    )


def is_usable() -> bool:
    """Whether every kernel requested so far in this process could be compiled."""
    with _LOCK:
        return None not in _CALLS.values()


def runtime_version() -> tuple[int, int]:
    """(major, minor) of the C interface of the installed jaxlib, from its header."""
    header = Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h"
    text = header.read_text(encoding="utf-8", errors="replace")
    matches = [re.search(rf"^#define XLA_FFI_API_{part} (\d+)", text, re.MULTILINE) for part in ("MAJOR", "MINOR")]
    if None in matches:
        raise RuntimeError(f"{header} does not contain its version")
    major, minor = (int(match[1]) for match in matches if match)
    return major, minor


def _prepared(specification: str) -> Call | None:
    """The call of a kernel, compiled and registered; None with a warning if that fails, for whatever reason."""
    try:
        machine_code = _compiled(specification)
        target = f"cpdpo_jax_{specification}".replace(" -> ", "-").replace(" ", "_").replace("&", "")
        jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(machine_code.ctypes), platform="cpu")
        _HANDLERS[specification] = machine_code
        return _call(specification, target)
    except Exception as error:
        warn_once(
            "numba's kernels",
            f"The numba kernel {specification.split()[0]} could not be compiled ({_reason(error)}), so pure JAX is "
            "used instead: results agree up to rounding, but wide layers are several times slower. Install or repair "
            "numba, or set CPDPO_PAPER_FORMS=1 to silence this warning.",
        )
        return None


def _compiled(specification: str) -> Any:
    """The machine code, from numba's cache if that is usable."""
    frame = importlib.import_module("cpdpo_jax.kernels.machines.numba.ffi_frame")
    handlers = importlib.import_module("cpdpo_jax.kernels.machines.numba.handlers")
    if runtime_version() not in frame.KNOWN:
        known = " and ".join(f"{major}.{minor}" for major, minor in frame.KNOWN)
        installed = ".".join(map(str, runtime_version()))
        raise RuntimeError(f"XLA's C interface has version {installed}, the kernels support {known}")
    try:
        return handlers.compiled(specification, cache=True)
    except Exception as error:
        machine_code = handlers.compiled(specification, cache=False)  # raises if the cache is not the reason
        warn_once(
            "numba's cache",
            f"numba's cache is not usable ({_reason(error)}), so every process compiles the kernels of wide layers "
            "anew; set NUMBA_CACHE_DIR to a writable directory, or empty the present one.",
        )
        return machine_code


def _call(specification: str, target: str) -> Call:
    parts = parse(specification)

    def call(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        sizes = axis_sizes(parts, arrays)
        results = [jax.ShapeDtypeStruct([sizes[axis] for axis in axes], dtype) for dtype, axes in parts.results]
        ffi_call = jax.ffi.ffi_call(target, results, input_output_aliases=parts.in_place, vmap_method="sequential")
        return tuple(ffi_call(*arrays))

    return call


def _reason(error: Exception) -> str:
    """The type and first line of an error; for errors of numba's compiler, of the innermost one that they contain."""
    text = re.sub(r"\x1b\[[\d;]*m", "", str(error))  # colours
    _, nested, inner = text.rpartition("Failed in nopython mode pipeline")
    lines = [line.strip() for line in inner.splitlines()[bool(nested) :] if line.strip()]
    return f"{type(error).__name__}: {(lines or [''])[0]}"
