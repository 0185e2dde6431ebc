"""Compiled programs in files: what one process has traced and compiled, the next one reads, and traces nothing.

jax's own cache spares only the compiler, not the tracing before it, which it needs to know what to look for. Here a
program is found by what it is traced from: the code as it is loaded (`loaded_code`), the shapes of its arguments, jax's
settings, versions and the processor. A file that differs in any of them is not read. Only programs of the package's own
learners on one CPU device have files, in the directory of jax's cache; where that is turned off, or all that exists
only for speed on a CPU, there are none, nor with XLA_FLAGS: nobody knows when XLA has read them.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import itertools
import os
import pickle
import sys
import zlib
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.core
from jax.experimental import serialize_executable

from cpdpo_jax.common import files
from cpdpo_jax.common.machine import cpu_type
from cpdpo_jax.kernels.cpu.choice import handed_out
from cpdpo_jax.kernels.cpu.loaded_code import LIBRARIES, PACKAGE, fingerprint
from cpdpo_jax.kernels.cpu.switch import cpu_acceleration_enabled, nothing_is_missing

FOLDER = "programs"  # in the directory of jax's cache
_KERNELS = f"{PACKAGE}.kernels.cpu.ffi"
_WHERE = ("jax_compilation_cache_", "jax_persistent_cache_")  # settings of where and when, not of what is compiled
_WITHOUT = ("jax_disable_jit", "jax_debug_nans", "jax_debug_infs")  # settings under which `jax.jit` does more than run
_FLAGS = os.environ.get("XLA_FLAGS", "")

# How it begins on Linux and on macOS. XLA leaves it out of a program that it has itself read, from jax's cache: such a
# file could be loaded, but not run.
_MACHINE_CODE = b"\x7fELF", b"\xcf\xfa\xed\xfe"

# A number of its own for each program that is traced for a file: else jax takes what it has traced before of functions
# inside, maybe of code that has been replaced since.
_TRACED_ANEW = jax.make_user_context(0)
_NUMBERS = itertools.count(1)


class Signature(NamedTuple):
    """What tells one compiled program of a function from another in this process."""

    static: tuple[Any, ...]
    structure: Any  # of the other arguments
    types: tuple[Any, ...]  # of their leaves
    settings: tuple[tuple[str, Any], ...]  # of jax, in this thread and context


class _File(NamedTuple):
    """What a file holds."""

    origin: str  # hash of all that decides what the program is
    kernels: list[tuple[Any, ...]]  # of numba, that it calls, as `ffi` names them
    kernels_code: str | None  # the fingerprint of `ffi`, if it was asked for some
    arguments: Any  # structure of what it takes
    results: Any
    executable: bytes


def signature(static: Sequence[Any], arguments: Sequence[Any]) -> Signature | None:
    """Of a program for such arguments; None: it has no file."""
    settings = getattr(jax.config, "values", None)
    if not settings or not _directory(settings) or any(settings[name] for name in _WITHOUT):
        return None
    if _FLAGS or os.environ.get("XLA_FLAGS") or not cpu_acceleration_enabled() or jax.device_count() > 1:
        return None
    leaves, structure = jax.tree.flatten(arguments)
    if not all(map(_is_usual, {type(leaf) for leaf in leaves})):
        return None
    types = tuple([getattr(leaf, "aval", int) for leaf in leaves])
    return Signature(tuple(static), structure, types, tuple(settings.items()))


def _is_usual(kind: type) -> bool:
    """Arrays and whole numbers; nothing that another program is just traced with."""
    return kind is int or (issubclass(kind, jax.Array) and not issubclass(kind, jax.core.Tracer))


def _directory(settings: dict[str, Any]) -> str | None:
    """That of jax's cache, if there is one on this machine."""
    place = settings["jax_compilation_cache_dir"] if settings["jax_enable_compilation_cache"] else None
    return place if place and "://" not in place else None


def program(
    jitted: Callable[[str], Any], name: Any, made_of: Sequence[Any], known: Signature, arguments: Sequence[Any]
) -> Any:
    """A function compiled for such arguments, read from its file or compiled now and written; None: it has no file.

    jitted(text): the function, jitted, with `text` in its name. name: what it is called; a program of other code takes
    the place of one of the same name and arguments. made_of: functions, objects and options that it is traced from.
    The program takes those of the arguments that are not static.
    """
    code, settings = fingerprint(*made_of), dict(known.settings)
    if code is None:
        return None
    decisive = [item for item in known.settings if not item[0].startswith(_WHERE)]
    here = _hash(decisive, _versions(), cpu_type())
    given = known.static, str(known.structure), [(one, getattr(one, "weak_type", None)) for one in known.types]
    path = Path(str(_directory(settings))) / FOLDER / f"{_hash(name, given, here)}.program"
    origin = _hash(name, given, here, code)
    found = _read(path, origin)
    if found is not None:
        return found
    before = handed_out()
    with _TRACED_ANEW(next(_NUMBERS)):
        compiled = jitted(here[:8]).lower(*arguments).compile()
    if nothing_is_missing():
        _write(path, origin, compiled, calls_kernels=handed_out() > before)
    return compiled


def _hash(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


@functools.cache
def _versions() -> list[str]:
    found = [sys.version]
    for name in (PACKAGE, *LIBRARIES):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            found.append(f"no {name}")
    return found


def _read(path: Path, origin: str) -> Any:
    """The program, if the file is there, whole, and of this origin; whatever is wrong with it, it is made anew."""
    try:
        file: _File = pickle.loads(files.unsealed(path.read_bytes()) or b"")
        if file.origin != origin:
            return None
        if file.kernels_code is not None:
            ffi = importlib.import_module(_KERNELS)
            if file.kernels_code != fingerprint(ffi):
                return None
            ffi.make_known(file.kernels)
        executable = zlib.decompress(file.executable)
        return serialize_executable.deserialize_and_load(
            executable, file.arguments, file.results, execution_devices=jax.devices()
        )
    except Exception:
        return None


def _write(path: Path, origin: str, compiled: Any, calls_kernels: bool) -> None:
    """Keep a program; one that can not be kept is compiled again by the next process.

    calls_kernels: some of numba's were handed out while it was traced, if not to it then to another thread.
    """
    try:
        executable, arguments, results = serialize_executable.serialize(compiled)
        if not any(mark in executable for mark in _MACHINE_CODE):
            return
        ffi = sys.modules.get(_KERNELS)  # a program that calls its kernels has loaded it
        kernels = ffi.targets_in(executable) if ffi else []
        kernels_code = fingerprint(ffi) if kernels or calls_kernels else None
        if (kernels or calls_kernels) and kernels_code is None:
            return
        file = _File(origin, kernels, kernels_code, arguments, results, zlib.compress(executable, 1))
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, files.sealed(pickle.dumps(file)))
    except Exception:
        return
