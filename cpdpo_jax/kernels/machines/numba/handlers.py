"""The functions that XLA calls: each decodes a call frame by a specification and calls a kernel with its arrays.

A handler closes over two values only, its specification and a checksum of the source, because they are the key of
numba's cache on disk: a function there would be stored with an identity that differs between processes.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import carray, cfunc, types  # pyright: ignore[reportPrivateImportUsage]
from numba.extending import overload

from cpdpo_jax.kernels.machines import sizes
from cpdpo_jax.kernels.machines.numba import episode, ffi_frame
from cpdpo_jax.kernels.machines.numba import sorted as sorted_form
from cpdpo_jax.kernels.machines.numba.specification import parse

KERNELS: dict[str, Any] = {
    "occupancy_bounds": sorted_form.occupancy_bounds,
    "sample_path": episode.sample_path,
    "count_episode": episode.count_episode,
    "count_whole_episode": episode.count_whole_episode,
    "visited_rows": episode.visited_rows,
    "root_value": episode.root_value(own=False),
    "root_value_own": episode.root_value(own=True),
    "truncated_evaluation": episode.truncated_evaluation(),
    "optimistic_evaluation": episode.optimistic_evaluation(),
}
_CODES = {"bool": 1, "int32": 4, "float32": 11, "float64": 12}  # XLA_FFI_DataType
_VIEWS = {"bool": np.uint8, "int32": np.int32, "float32": np.float32, "float64": np.float64}  # in machine code


def compiled(specification: str, cache: bool) -> Any:
    """The handler's machine code, a C function of the call frame's address; from numba's cache on disk if `cache`."""
    return cfunc(types.int64(types.int64), cache=cache)(_handler(specification, _checksum()))


def _checksum() -> int:
    """Of all source files here and of `sizes`: numba's cache notices changes of this file only, and would be stale."""
    paths = [*sorted(Path(__file__).parent.glob("*.py")), Path(sizes.__file__)]
    return zlib.crc32(b"".join(path.read_bytes() for path in paths))


def _handler(specification: str, checksum: int) -> Callable[[int], int]:
    def handler(address):
        _ = checksum
        frame = ffi_frame.words(address, 15)
        if ffi_frame.answers_query(frame):
            return 0
        return _call_kernel(frame, specification)

    # The symbol of the machine code is this name and a number that counts the functions compiled in a process. With one
    # name for all, a process that loads from the cache what two others have compiled calls the first code for both.
    handler.__qualname__ = re.sub(r"\W+", "_", f"handler {specification}")
    return handler


def _call_kernel(frame: Any, specification: Any) -> Any:
    """Call the kernel of a specification with the arrays of a frame; 0, or the address of an error."""


@overload(_call_kernel, prefer_literal=True)
def _(frame, specification):
    """Source for the literal specification: one array per buffer, its shape read from the frame."""
    if not isinstance(specification, types.StringLiteral):
        return None  # numba's second attempt, whose error would hide the first one
    parts = parse(specification.literal_value)
    lines, arrays = ["def call(frame, specification):"], []
    lines += ["    if not has_buffers(frame, ARGUMENTS, RESULTS):", "        return refusal(frame)"]
    results = parts.results[len(parts.in_place) :]
    for kind, first, buffers in (("argument", 0, parts.arguments), ("result", len(parts.in_place), results)):
        for i, (dtype, axes) in enumerate(buffers, first):
            array, shape = f"{kind}_{i}", "".join(f"dims[{axis}], " for axis in range(len(axes)))
            lines += [f"    data, dims = {kind}(frame, {i})", f"    {array} = carray(data, ({shape}), {dtype.name})"]
            arrays.append(array)
    lines += [f"    KERNEL({', '.join(arrays)})", "    return 0"]
    names = {name: getattr(ffi_frame, name) for name in ("has_buffers", "refusal", "argument", "result")}
    names |= {"carray": carray, "KERNEL": KERNELS[parts.form], **_VIEWS}
    for name, buffers in (("ARGUMENTS", parts.arguments), ("RESULTS", parts.results)):
        names[name] = tuple((len(axes), _CODES[dtype.name]) for dtype, axes in buffers)
    exec("\n".join(lines), names)
    return names["call"]
