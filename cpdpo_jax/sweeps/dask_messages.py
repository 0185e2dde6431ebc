"""What the client and dask's workers say to one another: plain values in JSON, and the bytes of files. No pickles.

Task    what a worker is to run, and what it must be to run it
Reply   what came of it; without a shared directory with the files of the finished blocks
"""

from __future__ import annotations

import io
import json
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from cpdpo_jax.common import files
from cpdpo_jax.sweeps.provenance import rounding, versions

STATES = ("done", "stopped", "refused", "failed", "disk")


@dataclass(frozen=True)
class Task:
    """Blocks for a worker."""

    session: str  # of the client: what it stops, and under what its progress is told
    blocks: dict[str, dict[str, Any]]
    batch: bool
    every: float
    directory: str | None  # the run directory; None: results are sent back
    config_hash: str  # of the run in that directory
    expects: dict[str, str]  # see `fingerprint`
    imports: list[list[Any]]  # as of `imports.Imported`
    x64: bool

    def text(self) -> str:
        """As it is sent."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Reply:
    """What a worker says at the end."""

    state: str  # one of `STATES`
    message: str = ""  # what went wrong, or is to be told beside what is done
    number: int = 0  # of the system's error, if the disk is to blame
    host: str = ""
    rounding: dict[str, str] = field(default_factory=dict)  # see `provenance.rounding`: what the worker runs on
    files: dict[str, bytes] = field(default_factory=dict)  # finished blocks by key, where no directory is shared

    def pack(self) -> bytes:
        """As it is sent: a line of JSON, then the files."""
        head = {**asdict(self), "files": {key: len(content) for key, content in self.files.items()}}
        return b"".join([json.dumps(head).encode(), b"\n", *self.files.values()])

    @staticmethod
    def unpack(content: Any, keys: set[str]) -> Reply:
        """A reply, checked; `keys`: the only ones whose files are taken."""
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
            told = str(head["state"]), str(head["message"]), int(head["number"]), str(head["host"])
            reply = Reply(*told, machine, parts)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"a worker's reply cannot be read: {error}.") from error
        if not good or reply.state not in STATES:
            raise ValueError("a worker's reply is not of the form that was asked for.")
        return reply


def fingerprint() -> dict[str, str]:
    """What must be the same on client and worker, since it decides how numbers are rounded.

    Processors and devices may differ (a login node computes nothing): each block's file says what it was run on.
    """
    switches = {name: value for name, value in rounding().items() if name not in ("cpu", "devices")}
    return versions() | switches


def check_file(content: bytes, key: str, block: dict[str, Any]) -> None:
    """Refuse what is not the file of this block: plain arrays and texts that lie in it, and its own description."""
    import h5py

    try:
        body = files.unsealed(content)
        if body is None:
            raise ValueError("it has no checksum at its end")
        with h5py.File(io.BytesIO(body), "r") as file:
            if file.attrs["block_key"] != key or json.loads(str(file.attrs["block"])) != block:
                raise ValueError("it is another block")
            for name in file:
                _check_variable(file, str(name))
            seeds: Any = file["seed"]
            if not np.array_equal(seeds[()], block["seeds"]):
                raise ValueError("its seeds are others")
    except (OSError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"what a worker sent as block {key} is not taken: {error}.") from error


def _check_variable(file: Any, name: str) -> None:
    """An array of numbers or texts inside the file: links and stores elsewhere would read other files of ours."""
    import h5py

    if not isinstance(file.get(name, getlink=True), h5py.HardLink):
        raise ValueError(f"{name!r} points elsewhere")
    array = file[name]
    if not isinstance(array, h5py.Dataset) or array.is_virtual or array.external is not None:
        raise ValueError(f"{name!r} is not an array of its own")
    if array.dtype.kind not in "fiubSU" and h5py.check_string_dtype(array.dtype) is None:
        raise ValueError(f"{name!r} holds {array.dtype}, neither numbers nor texts")
