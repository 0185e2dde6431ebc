"""User code: files and modules that register learners and environments before a run.

They are named by `imports = ["mine.py", "package.module"]` in the file or by `--import` on the command line. An import
is identified by a hash of all user modules that it loads (`hashing.user_code`), which is part of every block's key.
Loaded modules are loaded again, so that the code that runs is the code that was hashed. A file can be sent to other
machines (`Imported.files`), where it has the same hash.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cpdpo_jax.sweeps import hashing, source_loader
from cpdpo_jax.sweeps.received import CodeDirectory


class Imported(NamedTuple):
    """The code of an import."""

    name: str  # the path of a FILE.py, or the name of a module
    digest: str  # hash of the names and contents of all files
    files: dict[str, str]  # source (bytes as Latin-1) of every user module that it loads, by path below its folder

    @property
    def unhashed(self) -> list[str]:
        """The modules without a file, for example in an archive."""
        return sorted(name for name, text in self.files.items() if text == hashing.UNHASHABLE.decode("latin-1"))


class _Loaded(NamedTuple):
    code: Imported
    module: str
    dynamic: dict[str, Path]  # user modules that it loaded by computed names, and files that it executed
    learners: set[str]
    environments: set[str]
    folder: CodeDirectory | None = None  # of a received copy


_LOADED: dict[str, _Loaded] = {}
_LOCK = threading.RLock()


def is_file(name: str) -> bool:
    """Whether an import names a file."""
    return name.endswith(".py")


def read(name: str) -> Imported:
    """Read the code of an import without executing it."""
    dynamic = _LOADED[name].dynamic if name in _LOADED else {}
    return _read(name, Path(name).absolute() if is_file(name) else None, dynamic)


def _read(name: str, path: Path | None, dynamic: Mapping[str, Path]) -> Imported:
    if path is None:
        starts = _module_files(name)
    elif path.is_file():
        starts = {path.name: path}
    else:
        raise ValueError(f"import {name!r}: there is no such file; give a FILE.py, or the name of a module.")
    files = hashing.user_code({**dynamic, **starts})
    texts = {file: content.decode("latin-1") for file, content in files.items()}
    return Imported(name if path is None else str(path), hashing.digest(files), texts)


def _module_files(name: str) -> dict[str, Path]:
    """The files of the package that contains a module."""
    top, inner = name.partition(".")[0], name.replace(".", "/")
    files = hashing.module_files(top, {}, installed=True)
    if not any(file.startswith((f"{inner}.", f"{inner}/__init__.")) for file in files):
        problem = f"{top!r} has no module of that name" if files else f"No module named {top!r}"
        raise ValueError(f"import {name!r}: {problem}; give a FILE.py, or a module that has a source file.")
    return files


def load(names: Sequence[str]) -> list[Imported]:
    """Import, in this order, what is not loaded yet or has changed."""
    with _LOCK:
        for name in names:
            read(name)  # raises for a missing import before any is executed
        for name, loaded in list(_LOADED.items()):
            if loaded.folder is None and _read_local(name) != loaded.code:
                _unload_import(name)
        return [_load(read(name), Path(name).absolute()) for name in names]


def load_received(received: Sequence[Imported], *, alone: bool = True) -> None:
    """`load` on a worker: files that this machine lacks are written to a temporary directory.

    If `alone`, other imports are unloaded, because they may register the same names.
    """
    digests = {code.digest for code in received}
    for name in [name for name, loaded in _LOADED.items() if alone and loaded.code.digest not in digests]:
        _unload_import(name)
    for code in received:
        if _is_loaded(code):
            continue
        local = _read_local(code.name)
        if local is not None and local.files.items() <= code.files.items():
            loaded = _load(local, Path(local.name))
        elif is_file(code.name):
            folder = CodeDirectory()
            for name, text in code.files.items():
                path = folder.path / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text.encode("latin-1"))
            loaded = _load(code, folder.path / Path(code.name).name, folder)
        else:
            problem = "is not installed here" if local is None else f"differs here ({local.digest}, not {code.digest})"
            raise ValueError(f"import {code.name!r} {problem}; install the same package on every machine.")
        if loaded.digest != code.digest:
            _unload_import(code.name)
            raise ValueError(
                f"import {code.name!r} loads different code here ({loaded.digest}, not {code.digest}); give every "
                "module that it imports a file, and install the same packages on every machine."
            )


def registered_names() -> set[str]:
    """The names of learners and environments that imports registered."""
    return {name for loaded in _LOADED.values() for name in loaded.learners | loaded.environments}


def digests(names: Sequence[str]) -> dict[str, str]:
    """The hash of each import's code."""
    return {name: read(name).digest for name in names}


def _is_loaded(code: Imported) -> bool:
    """Whether the same code is loaded, from any path."""
    return any(loaded.code.digest == code.digest for loaded in _LOADED.values())


def _read_local(name: str) -> Imported | None:
    try:
        return read(name)
    except ValueError:
        return None


def _load(requested: Imported, path: Path, folder: CodeDirectory | None = None) -> Imported:
    """Import code unless it is loaded; names that an older version registered are unregistered first."""
    from cpdpo_jax.envs import registry
    from cpdpo_jax.learners import base

    with _LOCK:
        if _is_loaded(requested):
            return requested
        _unload_import(requested.name)
        others = [loaded.code for loaded in _LOADED.values()]
        _unload({top for top in _top_names(requested.files) if not any(_same(top, requested, x) for x in others)})
        known, modules = (set(base.names()), set(registry.names())), set(sys.modules)
        try:
            with source_loader.executed_files() as executed:
                if is_file(requested.name):
                    source = requested.files[path.name].encode("latin-1")
                    module = source_loader.import_file(path, source, requested.name)
                else:
                    module = source_loader.import_module(requested.name)
        except (Exception, SystemExit) as error:
            _unregister(set(base.names()) - known[0], set(registry.names()) - known[1])
            _unload(_top_names(requested.files) - _loaded_top_names())
            raise ValueError(f"import {requested.name!r}: {source_loader.reason(error, path)}") from error
        dynamic = _dynamic_modules(set(sys.modules) - modules - {module.__name__}, requested.files)
        dynamic |= source_loader.outside_modules(executed, path.parent, {*requested.files, *dynamic})
        code = _read(requested.name, path if is_file(requested.name) else None, dynamic)
        added = set(base.names()) - known[0], set(registry.names()) - known[1]
        _LOADED[requested.name] = _Loaded(code, module.__name__, dynamic, *added, folder)
        return code


def _dynamic_modules(names: set[str], files: Mapping[str, str]) -> dict[str, Path]:
    """The user modules among the newly loaded ones that `files` lacks, with their (expected) paths."""
    paths = {}
    for name in names:
        module, top = sys.modules.get(name), name.partition(".")[0]
        spec, is_package = getattr(module, "__spec__", None), hasattr(module, "__path__")
        path = Path(getattr(module, "__file__", None) or name).absolute()
        file = name.replace(".", "/") + ("/__init__" if is_package else "") + (path.suffix or ".py")
        known = file in files or top == hashing.PACKAGE or _is_installed(top) or hashing.is_installed(path)
        namespace = is_package and getattr(module, "__file__", None) is None
        if spec and spec.loader and spec.origin not in ("built-in", "frozen") and not (known or namespace):
            paths[file] = path
    return paths


def _is_installed(top: str) -> bool:
    path = getattr(sys.modules.get(top), "__file__", None)
    return top in sys.stdlib_module_names or (path is not None and hashing.is_installed(Path(path).absolute()))


def _top_names(files: Mapping[str, str]) -> set[str]:
    """The names of the top-level modules of files."""
    return {file.partition("/")[0].partition(".")[0] for file in files}


def _loaded_top_names() -> set[str]:
    """The names of the top-level modules of all loaded imports."""
    return {top for loaded in _LOADED.values() for top in _top_names(loaded.code.files)}


def _same(top: str, a: Imported, b: Imported) -> bool:
    """Whether two imports have the same code below a top-level name."""
    files = [{file: text for file, text in code.files.items() if top in _top_names({file: text})} for code in (a, b)]
    return files[0] == files[1]


def _unload(tops: set[str]) -> None:
    """Remove user modules from `sys.modules`, and the names that they registered from the registries."""
    from cpdpo_jax.envs import registry
    from cpdpo_jax.learners import base

    gone = {top for top in tops if top in sys.modules and not _is_installed(top)}
    for name in [name for name in sys.modules if name.partition(".")[0] in gone]:
        sys.modules.pop(name, None)

    def is_gone(function: Any) -> bool:
        return (getattr(function, "__module__", None) or "").partition(".")[0] in gone

    learners = {name for name in base.registered() if is_gone(base.get(name).update)}
    environments = {name for name in registry.names() if is_gone(registry.registered(name))}
    _unregister(learners - registered_names(), environments - registered_names())


def _unload_import(name: str) -> None:
    """Unload an import, if it is loaded."""
    with _LOCK:
        loaded = _LOADED.pop(name, None)
        if loaded is not None:
            _unregister(loaded.learners, loaded.environments)
            sys.modules.pop(loaded.module, None)
            _unload({loaded.module.partition(".")[0], *_top_names(loaded.code.files)} - _loaded_top_names())
            if loaded.folder is not None:
                loaded.folder.remove()


def _unregister(learners: set[str], environments: set[str]) -> None:
    from cpdpo_jax.envs import registry
    from cpdpo_jax.learners import base

    for name in learners:
        base.unregister(name)
    for name in environments:
        registry.unregister(name)
