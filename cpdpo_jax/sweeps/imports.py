"""A user's own code: files and modules that register learners and environments before a run.

`imports = ["mine.py", "package.module"]` in the file, `--import` on the command line. What is imported is known by a
hash of its source: a FILE.py with those beside it that it imports (found in its text, so that the hash is the same in
every process), a MODULE by its file, a package by all of its files. The hash is part of every block's key. A file can
be sent to other machines (`Imported.files`), where it has the same hash.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple


class Imported(NamedTuple):
    """Code of a user's own."""

    name: str  # the path of a FILE.py, or the name of a module
    digest: str  # of the source
    files: dict[str, str]  # a FILE.py's own text and those it imports from beside it, by name; {}: a module

    @property
    def is_file(self) -> bool:
        """Whether it is a file and not an installed module."""
        return bool(self.files)


class _Loaded(NamedTuple):
    digest: str
    modules: set[str]  # its own, and those of the files beside it
    learners: set[str]
    environments: set[str]


_LOADED: dict[str, _Loaded] = {}
_LOCK = threading.RLock()


def is_file(name: str) -> bool:
    """Whether an import is meant as a file."""
    return name.endswith(".py")


def read(name: str) -> Imported:
    """What an import is, from its source; nothing is run (but the packages that a module lies in)."""
    if is_file(name):
        path = Path(name).absolute()
        if not path.is_file():
            raise ValueError(f"import {name!r}: there is no such file; give a FILE.py, or the name of a module.")
        files = _with_neighbours(path)
        return Imported(str(path), _digest(files), files)
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        raise ValueError(f"import {name!r}: {error}; give a FILE.py, or a module that is installed.") from error
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        what = "there is no such module" if spec is None else "it has no source"
        raise ValueError(f"import {name!r}: {what}; give a FILE.py, or a module that is installed.")
    origin = Path(spec.origin)
    if spec.submodule_search_locations is None:
        return Imported(name, _digest({origin.name: _text(origin)}), {})
    paths = sorted(origin.parent.rglob("*.py"))
    return Imported(name, _digest({path.relative_to(origin.parent).as_posix(): _text(path) for path in paths}), {})


def load(names: Sequence[str]) -> list[Imported]:
    """Import in order what is not there yet, or has changed."""
    found = [read(name) for name in names]
    for one in found:
        _load(one, Path(one.name))
    return found


def load_sent(sent: Sequence[Imported], *, alone: bool = True) -> None:
    """`load` where the files may be missing: those of another machine are written into a directory of their own.

    What was sent before and is not sent now is forgotten, if `alone`: it may have registered the same names.
    """
    wanted = {one.digest for one in sent}
    for name in [name for name, loaded in _LOADED.items() if alone and loaded.digest not in wanted]:
        _drop(name)
    for one in sent:
        here = _read_here(one)
        if here is not None and here.digest == one.digest:
            _load(here, Path(here.name))
        elif one.is_file:
            folder = Path(tempfile.mkdtemp(prefix="cpdpo-import-"))
            for name, text in one.files.items():
                (folder / name).write_text(text, encoding="utf-8")
            _load(one, folder / Path(one.name).name)
        else:
            told = "is not installed here" if here is None else f"is another one here ({here.digest}, not {one.digest})"
            raise ValueError(f"import {one.name!r} {told}; install the same package on every machine.")


def registered() -> set[str]:
    """The names of learners and environments that imports brought."""
    return {name for loaded in _LOADED.values() for name in loaded.learners | loaded.environments}


def digests(names: Sequence[str]) -> dict[str, str]:
    """The hash of each import's source."""
    return {name: read(name).digest for name in names}


def _read_here(one: Imported) -> Imported | None:
    try:
        return read(one.name)
    except ValueError:
        return None


def _load(one: Imported, path: Path) -> None:
    """Import it unless the same is there already; what an older one had registered is forgotten first."""
    from cpdpo_jax.envs import registry
    from cpdpo_jax.learners import base

    with _LOCK:
        if any(loaded.digest == one.digest for loaded in _LOADED.values()):  # here, or as a copy elsewhere
            return
        _drop(one.name)
        known = set(base.names()), set(registry.names())
        try:
            module = _import_file(path, one) if one.is_file else importlib.import_module(one.name)
        except (Exception, SystemExit) as error:
            _forget(_Loaded("", set(), set(base.names()) - known[0], set(registry.names()) - known[1]))
            raise ValueError(f"import {one.name!r}: {_told(error, path)}") from error
        added = set(base.names()) - known[0], set(registry.names()) - known[1]
        stems = {Path(name).stem for name in one.files} - {path.stem}
        _LOADED[one.name] = _Loaded(one.digest, {module.__name__, *stems}, *added)


def _drop(name: str) -> None:
    """Forget an import, if there was one."""
    with _LOCK:
        before = _LOADED.pop(name, None)
        if before is not None:
            _forget(before)


def _forget(before: _Loaded) -> None:
    from cpdpo_jax.envs import registry
    from cpdpo_jax.learners import base

    for name in before.learners:
        base.unregister(name)
    for name in before.environments:
        registry.unregister(name)
    for name in [one for one in sys.modules if any(f"{one}.".startswith(f"{own}.") for own in before.modules)]:
        sys.modules.pop(name, None)


def _import_file(path: Path, one: Imported) -> ModuleType:
    """Run a file as a module, the files beside it importable as they are for a script."""
    folder = str(path.parent)
    sys.path[:] = [folder, *(one for one in sys.path if one != folder)]
    importlib.invalidate_caches()
    name = f"cpdpo_import_{path.stem}_{hashlib.sha256(one.name.encode()).hexdigest()[:8]}"
    spec: Any = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # from its text, and nothing compiled is kept of the files beside it: it would hide a change of the same second
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        exec(compile(one.files[path.name], str(path), "exec"), module.__dict__)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    finally:
        sys.dont_write_bytecode = writes
    return module


def _told(error: BaseException, path: Path) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    return f"{type(error).__name__}{f' in line {line}' if line else ''}: {error}"


def _with_neighbours(path: Path) -> dict[str, str]:
    """A file's text, and those of the files in its directory that it imports, directly or through one another."""
    files, todo = {}, [path]
    while todo:
        one = todo.pop()
        if one.name in files or not one.is_file():
            continue
        files[one.name] = _text(one)
        todo += [path.parent / f"{name}.py" for name in _imported_names(files[one.name])]
    return files


def _imported_names(text: str) -> set[str]:
    """The top-level modules that a text imports anywhere in it; a text that is not Python is told of when it is run."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"import {str(path)!r} is not a text file in UTF-8.") from error


def _digest(files: dict[str, str]) -> str:
    whole = hashlib.sha256()
    for name, text in sorted(files.items()):
        whole.update(f"{name}\0{len(text)}\0{text}".encode())
    return whole.hexdigest()[:16]
