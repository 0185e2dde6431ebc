"""Messages between the client and dask workers: JSON and the bytes of files, no pickles.

Task    the blocks for a worker, and the versions that it must have
Reply   the outcome; without a shared directory also the files of the finished blocks
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from cpdpo_jax.common import files
from cpdpo_jax.sweeps.provenance import rounding, versions

FILE_SECONDS = 60.0  # timeout for a file that another machine has written to appear here
STATES = ("done", "stopped", "refused", "failed", "disk")


@dataclass(frozen=True)
class Task:
    """Blocks for a worker."""

    session: str  # identifies the client's run when it stops workers and receives progress
    blocks: dict[str, dict[str, Any]]
    batch: bool
    every: float
    directory: str | None  # the run directory; None: the worker sends results back
    config_hash: str  # of the run in that directory
    expects: dict[str, str]  # see `fingerprint`
    imports: list[list[Any]]  # the fields of each `imports.Imported`
    contexts: dict[str, Any]  # jax's contexts on the client

    def text(self) -> str:
        """The task as JSON."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Reply:
    """A worker's reply at the end of a task."""

    state: str  # one of `STATES`
    message: str = ""  # the error, or a warning about finished blocks
    number: int = 0  # errno of a disk error
    host: str = ""
    rounding: dict[str, str] = field(default_factory=dict)  # the worker's machine, see `provenance.rounding`
    files: dict[str, bytes] = field(default_factory=dict)  # finished blocks by key, without a shared directory

    def pack(self) -> bytes:
        """The reply as bytes: a line of JSON, then the files."""
        head = {**asdict(self), "files": {key: len(content) for key, content in self.files.items()}}
        return b"".join([json.dumps(head).encode(), b"\n", *self.files.values()])

    @staticmethod
    def unpack(content: Any, keys: set[str]) -> Reply:
        """The checked reply in `content`, which may have files of the blocks in `keys` only."""
        try:
            line, _, rest = bytes(content).partition(b"\n")
            head = json.loads(line)
            lengths = {str(key): int(length) for key, length in head.pop("files").items()}
            parts, first = {}, 0
            for key, length in lengths.items():
                parts[key] = rest[first : first + length]
                first += length
            good = first == len(rest) and min(lengths.values(), default=0) >= 0 and set(lengths) <= keys
            machine = {str(name): str(value) for name, value in head["rounding"].items()}
            state, message = str(head["state"]), str(head["message"])
            reply = Reply(state, message, int(head["number"]), str(head["host"]), machine, parts)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"a worker's reply cannot be read: {error}.") from error
        if not good or reply.state not in STATES:
            raise ValueError("a worker's reply is malformed; install the same version of cpdpo_jax on every machine.")
        return reply


def fingerprint() -> dict[str, str]:
    """The versions and compiler options that client and workers must share, because they determine rounding.

    Processors and devices may differ, since a login node computes nothing; each block's file records its machine.
    """
    options = {name: value for name, value in rounding().items() if name not in ("cpu", "devices")}
    return versions() | options


def check_file(content: bytes, key: str, block: dict[str, Any]) -> None:
    """Raise unless `content` is the file of this block: arrays and texts inside the file, and its description."""
    import h5py

    try:
        body = files.unseal(content)
        if body is None:
            raise ValueError("it has no checksum at its end")
        with h5py.File(io.BytesIO(body), "r") as file:
            if file.attrs["block_key"] != key or json.loads(str(file.attrs["block"])) != block:
                raise ValueError("it is another block")
            for name in file:
                _check_variable(file, str(name))
            seeds: Any = file["seed"]
            if not np.array_equal(seeds[()], block["seeds"]):
                raise ValueError("its seeds differ")
    except (OSError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"the file of block {key} that a worker sent is rejected: {error}.") from error


def _check_variable(file: Any, name: str) -> None:
    """Raise unless a variable is an array of numbers or texts inside the file; links could read other files."""
    import h5py

    if not isinstance(file.get(name, getlink=True), h5py.HardLink):
        raise ValueError(f"{name!r} is a link")
    array = file[name]
    if not isinstance(array, h5py.Dataset) or array.is_virtual or array.external is not None:
        raise ValueError(f"{name!r} is not an array inside the file")
    if array.dtype.kind not in "fiubSU" and h5py.check_string_dtype(array.dtype) is None:
        raise ValueError(f"{name!r} has type {array.dtype}, neither numbers nor texts")


def wait_until(condition: Callable[[], bool], problem: str) -> None:
    """Wait for a file of another machine, which network file systems show with a delay of seconds."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > FILE_SECONDS:
            raise ValueError(f"{problem}; share the directory, or give --no-shared.")
        time.sleep(0.2)
