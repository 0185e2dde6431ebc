"""Compiled programs in files: what one process has traced and compiled, the next one reads, and traces nothing.

jax's own cache spares only the compiler, not the tracing before it, which it needs to know what to look for. Here a
program is found by what it is traced from: the code as it is loaded (`loaded_code`), the shapes of its arguments, jax's
settings, versions, compiler flags and the processor. A file that differs in any of them is not read. Only programs of
the package's own learners on one CPU device have files, in the directory of jax's cache; where that is turned off, or
all that exists only for speed on a CPU, there are none.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import pickle
import sys
import zlib
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import jax
import jax.core
from jax.experimental import serialize_executable

from cpdpo_jax.common import files
from cpdpo_jax.common.machine import cpu_type
from cpdpo_jax.kernels.cpu.loaded_code import fingerprint
from cpdpo_jax.kernels.cpu.switch import cpu_acceleration_enabled, nothing_is_missing

FOLDER = "programs"  # in the directory of jax's cache
_PACKAGES = ("cpdpo_jax", "jax", "jaxlib", "numpy", "numba", "llvmlite")
_WHERE = ("jax_compilation_cache_", "jax_persistent_cache_")  # settings of where and when, not of what is compiled

# How it begins on Linux and on macOS. XLA leaves it out of a program that it has itself read, from jax's cache: such a
# file could be loaded, but not run.
_MACHINE_CODE = b"\x7fELF", b"\xcf\xfa\xed\xfe"


class _File(NamedTuple):
    """What a file holds."""

    made_from: str  # hash of all that decides what the program is, but what its name says
    targets: list[tuple[Any, ...]]  # numba's kernels that it calls, as `ffi` names them
    calls: str | None  # fingerprint of how it calls them; the kernels themselves are this process's own
    arguments: Any  # structure of what it takes
    results: Any
    executable: bytes


def signature(static: Sequence[Any], arguments: Sequence[Any]) -> Any:
    """What tells one compiled program of a function from another in this process, hashable; None: it has no file."""
    settings = getattr(jax.config, "values", None)  # as they are in this thread and context
    if not settings or settings["jax_disable_jit"] or not _place(settings):
        return None
    leaves, structure = jax.tree.flatten(arguments)
    usual = all(map(_is_passed, {type(leaf) for leaf in leaves}))
    if not usual or not cpu_acceleration_enabled() or jax.device_count() > 1:
        return None
    return tuple(static), structure, tuple([getattr(leaf, "aval", int) for leaf in leaves]), tuple(settings.items())


def _is_passed(kind: type) -> bool:
    """Arrays and whole numbers; nothing that another program is just traced with."""
    return kind is int or (issubclass(kind, jax.Array) and not issubclass(kind, jax.core.Tracer))


def _place(settings: dict[str, Any]) -> str | None:
    """The directory of jax's cache, if there is one on this machine."""
    place = settings["jax_compilation_cache_dir"] if settings["jax_enable_compilation_cache"] else None
    return place if place and "://" not in place else None


def program(jitted: Any, name: Any, made_from: Sequence[Any], kind: Any, arguments: Sequence[Any]) -> Any:
    """`jitted` compiled for such arguments, read from its file or compiled now and written; None: not to be kept.

    name: what it is called; another program of the same name and arguments takes its place. made_from: functions,
    objects and options that `jitted` is traced from. kind: the `signature` of its arguments. The program takes those of
    the arguments that are not static.
    """
    code = fingerprint(*made_from)
    if code is None:
        return None
    static, structure, kinds, settings = kind
    given = static, str(structure), [(one, getattr(one, "weak_type", None)) for one in kinds]
    decisive = [one for one in settings if not one[0].startswith(_WHERE)]
    path = Path(str(_place(dict(settings)))) / FOLDER / f"{_hash(name, given, cpu_type())}.program"
    whole = _hash(code, given, decisive, _surroundings())
    found = _read(path, whole)
    if found is not None:
        return found
    compiled = jitted.lower(*arguments).compile()
    if nothing_is_missing():
        _write(path, whole, compiled)
    return compiled


def _hash(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


@functools.cache
def _versions() -> list[str]:
    found = [sys.version]
    for name in _PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            found.append(f"no {name}")
    return found


def _surroundings() -> list[Any]:
    flags = sorted(item for item in os.environ.items() if "XLA" in item[0])
    return [_versions(), cpu_type(), flags]


def _read(path: Path, made_from: str) -> Any:
    """The program, if the file is there, whole, and of this code; whatever is wrong with it, it is made anew."""
    try:
        content = files.unsealed(path.read_bytes())
        kept: _File = pickle.loads(content or b"")
        if kept.made_from != made_from:
            return None
        if kept.targets:
            ffi = importlib.import_module("cpdpo_jax.kernels.cpu.ffi")
            if kept.calls != _calls(ffi):
                return None
            ffi.make_known(kept.targets)
        return serialize_executable.deserialize_and_load(
            zlib.decompress(kept.executable), kept.arguments, kept.results, execution_devices=jax.devices()
        )
    except Exception:
        return None


def _write(path: Path, made_from: str, compiled: Any) -> None:
    """Keep a program; one that can not be kept is compiled again by the next process."""
    try:
        executable, arguments, results = serialize_executable.serialize(compiled)
        if not any(mark in executable for mark in _MACHINE_CODE):
            return
        ffi = sys.modules.get("cpdpo_jax.kernels.cpu.ffi")  # a program that calls its kernels has loaded it
        targets = ffi.targets_in(executable) if ffi else []
        calls = _calls(ffi) if targets else None
        kept = _File(made_from, targets, calls, arguments, results, zlib.compress(executable, 1))
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, files.sealed(pickle.dumps(kept)))
    except Exception:
        return


def _calls(ffi: Any) -> str | None:
    """Of the functions of `ffi` as they are loaded."""
    return fingerprint(*(one.__code__ for _, one in sorted(vars(ffi).items()) if isinstance(one, FunctionType)))
