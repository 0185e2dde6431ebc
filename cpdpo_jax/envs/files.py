"""Save and load a CMDP or a batch as an .npz file of plain arrays, without pickle."""

from __future__ import annotations

import io
import os
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np

from cpdpo_jax.common import files
from cpdpo_jax.common.types import CMDP, Units
from cpdpo_jax.envs.build import make_cmdp, unstack

FORMAT, VERSION = "cpdpo_jax.CMDP", 1
_UNREADABLE = (
    ValueError, OSError, EOFError, KeyError, TypeError, SyntaxError, MemoryError, NotImplementedError, RuntimeError,
    OverflowError, zipfile.BadZipFile, zlib.error, struct.error, tokenize.TokenError,
)  # fmt: skip
_ARRAYS = ("transition", "reward", "cost", "threshold", "action_mask", "concentration")


def save_cmdp(path: str | os.PathLike[str], cmdp: CMDP) -> Path:
    """Write the CMDP to one `.npz`, which `load_cmdp`, `cp.envs.make` and the command line read.

    A reader never sees a partial file: it is written under a temporary name and moved when complete.
    """
    if not isinstance(cmdp, CMDP):
        raise ValueError(f"cmdp is a {type(cmdp).__name__}; give the path first, then the CMDP.")
    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"path = {str(path)!r}; give a path that ends in .npz.")
    if not path.parent.is_dir():
        raise ValueError(f"path = {str(path)!r}: there is no directory {str(path.parent)!r}; create it first.")
    content = {field: np.asarray(getattr(cmdp, field)) for field in _ARRAYS}
    content |= {f"units.{field}": np.asarray(value) for field, value in zip(Units._fields, cmdp.units, strict=True)}
    content |= {
        "format": np.array(FORMAT),
        "version": np.array(VERSION),
        "noise": np.array(cmdp.noise),
        "names": np.array(cmdp.names),
    }
    if cmdp.unit_names:
        content["unit_names"] = np.array(cmdp.unit_names)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **content)
    files.write(path, buffer.getbuffer())
    return path


def load_cmdp(path: str | os.PathLike[str]) -> CMDP:
    """Read a CMDP that `save_cmdp` wrote, exactly as it was; its arrays are validated as by `make_cmdp`."""
    path = Path(path)
    content = _read(path)
    version = int(content["version"]) if content["version"].shape == () and content["version"].dtype.kind in "iu" else 0
    if version < 1:
        raise ValueError(f"{path} has an invalid format version; save it again with save_cmdp.")
    if version > VERSION:
        raise ValueError(
            f"{path} has format version {version}, but this cpdpo_jax reads up to {VERSION}; update the package."
        )
    try:
        units = Units(*(content[f"units.{field}"] for field in Units._fields))
        arrays = {field: content[field] for field in _ARRAYS}
        names = tuple(str(name) for name in np.atleast_1d(content["names"]))
        named = tuple(str(name) for name in np.atleast_1d(content.get("unit_names", ())))
        cmdp = CMDP(**arrays, units=units, noise=str(content["noise"]), names=names, unit_names=named)
    except KeyError as error:
        raise ValueError(f"{path} lacks {error.args[0]}; it is damaged: save it again with save_cmdp.") from error
    try:
        for instance in unstack(cmdp):
            make_cmdp(
                instance.transition,
                instance.reward,
                instance.cost,
                instance.threshold,
                action_mask=instance.action_mask,
                noise=instance.noise,
                concentration=float(instance.concentration),
                units=instance.units,
            )
    except (ValueError, IndexError, TypeError) as error:
        raise ValueError(f"{path} does not contain a valid CMDP: {error}") from error
    return cmdp


def _read(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file that `save_cmdp` wrote."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}; give the path of a CMDP saved with save_cmdp.")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            content = {name: np.asarray(archive[name]) for name in archive}
    except _UNREADABLE as error:
        raise ValueError(f"{path} is not a readable .npz file without pickles ({error}).") from error
    if str(content.get("format")) != FORMAT or "version" not in content:
        held = ", ".join(sorted(content)) or "nothing"
        raise ValueError(
            f"{path} is an .npz file but not a CMDP of cpdpo_jax (it holds {held}); write it with save_cmdp."
        )
    return content
