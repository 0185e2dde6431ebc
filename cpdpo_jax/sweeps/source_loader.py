"""Imports user code from its source; Python's bytecode files are neither read nor written.

The files that an import executes are recorded, because not all become modules in `sys.modules`: `runpy.run_path`,
modules of `spec_from_file_location` and text given to `exec` do not.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.machinery
import importlib.util
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from cpdpo_jax.sweeps import hashing

_EXECUTED: dict[int, set[str]] = {}  # of the imports that run now, by thread


def _record(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook, which sees all code that `exec` and the import system execute, and the files that are opened."""
    if event in ("exec", "open") and _EXECUTED and (names := _EXECUTED.get(threading.get_ident())) is not None:
        name = getattr(arguments[0], "co_filename", "") if event == "exec" else arguments[0]
        if isinstance(name, str) and (event == "exec" or name.endswith(".py")):
            names.add(name)


@functools.cache
def _add_hook() -> None:
    sys.addaudithook(_record)  # a process cannot remove it


@contextmanager
def executed_files() -> Iterator[set[str]]:
    """The names of the files that this thread executes in this context, and of the .py files that it opens."""
    _add_hook()
    before = _EXECUTED.get(threading.get_ident())
    names = _EXECUTED[threading.get_ident()] = set()
    try:
        yield names
    finally:
        del _EXECUTED[threading.get_ident()]
        if before is not None:
            _EXECUTED[threading.get_ident()] = before | names


def outside_modules(executed: set[str], folder: Path, known: set[str]) -> dict[str, Path]:
    """Executed user files that are not in `sys.modules` or `known`, by path below the import's folder or the root."""
    modules = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    paths = [Path(name).absolute() for name in executed - modules if Path(name).is_file()]
    files = {
        path.relative_to(folder if path.is_relative_to(folder) else path.anchor).as_posix(): path for path in paths
    }
    return {file: path for file, path in files.items() if file not in known and not hashing.is_installed(path)}


def import_module(name: str) -> ModuleType:
    """Import a module by its name."""
    with _source_finder():
        return importlib.import_module(name)


def import_file(path: Path, text: bytes, label: str) -> ModuleType:
    """Execute a file as a module; like a script, it can import the modules of its folder."""
    folder = str(path.parent)
    sys.path[:] = [folder, *(entry for entry in sys.path if entry != folder)]
    importlib.invalidate_caches()
    name = f"cpdpo_import_{path.stem}_{hashlib.sha256(label.encode()).hexdigest()[:8]}"
    spec: Any = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _source_finder():
            exec(compile(text, str(path), "exec"), module.__dict__)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


class _Source(importlib.machinery.SourceFileLoader):
    """Compiles the source: Python trusts a bytecode file if the source has the same size and modification second."""

    def get_code(self, fullname: str) -> Any:
        return self.source_to_code(self.get_data(self.path), self.path)


class _Finder:
    """Finds user modules and compiles them from their source."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or type(spec.loader) is not importlib.machinery.SourceFileLoader or spec.origin is None:
            return None
        if hashing.is_installed(Path(spec.origin).absolute()):
            return None
        spec.loader = _Source(name, spec.origin)
        return spec


@contextmanager
def _source_finder() -> Iterator[None]:
    sys.meta_path.insert(0, _Finder)
    try:
        yield
    finally:
        sys.meta_path.remove(_Finder)


def reason(error: BaseException, path: Path) -> str:
    """The error, with the line of the file that raised it."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    return f"{type(error).__name__}{f' in line {line}' if line else ''}: {error}"
