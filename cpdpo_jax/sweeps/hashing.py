"""Finds the files of a user's code and hashes them.

Imports are followed through every module that does not belong to an installed distribution, to Python or to this
package. They are parsed from the source, including imports inside functions, so the result does not depend on the
modules that a process has loaded. A package contributes all its modules, a namespace package those of all its folders.
Data files are not covered, nor are modules whose names are computed (`imports` adds the files that it sees executed).
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.machinery
import os
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

UNHASHABLE = os.urandom(16)  # replaces code without a file: differs in every process
PACKAGE = "cpdpo_jax"  # hashed separately, see `provenance`
_BINARY = tuple(importlib.machinery.EXTENSION_SUFFIXES)
_PYTHON = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}


def digest(files: Mapping[str, bytes]) -> str:
    """16 hexadecimal digits of the names and contents of files."""
    total = hashlib.sha256()
    for name, content in sorted(files.items()):
        total.update(f"{name}\0{len(content)}\0".encode() + content)
    return total.hexdigest()[:16]


def user_code(starts: Mapping[str, Path]) -> dict[str, bytes]:
    """The contents of the given files and of all user modules that they import, by path below the search path."""
    contents: dict[str, bytes] = {}
    todo = dict(starts)
    seen: set[str | Path] = set()
    while todo:
        name, path = todo.popitem()
        contents[name] = path.read_bytes() if path.is_file() else UNHASHABLE
        for top in imported_names(contents[name]) if path.suffix == ".py" else ():
            folder = path.parents[len(top) - 1] if top.startswith(".") and "/" not in name else None
            if (folder or top) in seen:
                continue
            seen.add(folder or top)
            # a relative import of a file outside a package: all modules below the folder
            files = module_files(top, starts) if folder is None else _modules_below(folder)
            todo |= {file: path for file, path in files.items() if file not in contents and file not in todo}
    return contents


def module_files(top: str, starts: Mapping[str, Path], *, installed: bool = False) -> dict[str, Path]:
    """The files of a top-level user module or package; {} for an installed one, unless `installed`."""
    files: dict[str, Path] = {}
    if top == PACKAGE or top.startswith("."):  # a relative import: its whole package is included already
        return files
    for location in _locations(top, [str(path.parent) for path in starts.values()]):
        if installed or not is_installed(location):
            files = _modules_below(location) | files  # Python uses the first of several folders
    return files


def is_installed(path: Path) -> bool:
    """Whether a file or folder belongs to Python, to this package, or to a distribution that pip installed."""
    for folder in path.parents:
        inside = path.relative_to(folder).parts[0]
        in_python = folder in _PYTHON and inside not in ("site-packages", "dist-packages")
        if in_python or folder.name == "dist-packages" or inside in _installed_names(folder):  # Debian has no RECORD
            return True
    return path.is_relative_to(Path(__file__).parents[1])


@functools.cache
def _installed_names(folder: Path) -> frozenset[str]:
    """The names that distributions installed in a folder; an editable install adds only a link."""
    names = set()
    for record in folder.glob("*.dist-info/RECORD"):
        with record.open(encoding="utf-8", errors="replace") as lines:
            names |= {line.partition(",")[0].partition("/")[0] for line in lines}
    return frozenset(names)


def _locations(top: str, folders: list[str]) -> list[Path]:
    """The file or folders of a top-level module, without loading it; [] if it is built in or does not exist."""
    spec = importlib.machinery.PathFinder.find_spec(top, [*folders, *sys.path])
    for finder in sys.meta_path if spec is None else ():  # editable installs
        spec = spec or finder.find_spec(top, None)
    if spec is None:
        return []
    folders = [folder for folder in spec.submodule_search_locations or () if os.path.isdir(folder)]
    paths = folders or ([spec.origin] if spec.has_location and spec.origin else [])
    return [Path(path).absolute() for path in paths]


def _modules_below(location: Path) -> dict[str, Path]:
    """All modules in a folder, or a single file, by path relative to the parent of `location`."""
    paths, seen = [] if location.is_dir() else [location], set[str]()
    for folder, inner, names in os.walk(location, followlinks=True):
        seen.add(os.path.realpath(folder))
        inner[:] = [x for x in inner if x.isidentifier() and os.path.realpath(os.path.join(folder, x)) not in seen]
        paths += [Path(folder, name) for name in names if name.endswith((".py", *_BINARY))]
    return {path.relative_to(location.parent).as_posix(): path for path in paths}


@functools.lru_cache(maxsize=4096)
def imported_names(text: bytes) -> frozenset[str]:
    """The top-level modules that a source imports anywhere, and one dot per level of its relative imports.

    An invalid source gives no names; it raises when it is executed.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return frozenset()
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append("." * node.level or node.module or "")
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            constants = [argument.value for argument in node.args[:1] if isinstance(argument, ast.Constant)]
            names += [name for name in constants if isinstance(name, str)]
    return frozenset(name[: len(name) - len(name.lstrip("."))] or name.partition(".")[0] for name in names if name)
