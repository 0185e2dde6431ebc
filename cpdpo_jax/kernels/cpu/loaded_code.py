"""What a program would be traced from: a fingerprint of the package's code as it is in memory, and of its files.

Begun at a function or a learner, all modules are read that it can reach inside the package: their text, and every
function, class and constant that they hold now. What was replaced at run time, in a notebook say, is another
fingerprint. Where there is anything that can not be followed (a function of the user's own, an object whose content is
not known here, a file that has changed since it was loaded) there is none. Of other packages only names are read.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import inspect
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import jax
import numpy as np

PACKAGE = __name__.partition(".")[0]
# their versions tell what they are
LIBRARIES = ("jax", "jaxlib", "numpy", "scipy", "optax", "chex", "tqdm", "highspy", "numba", "llvmlite")
_PYTHON = os.path.dirname(os.__file__)  # the folder of its own modules
_LOADED = time.time()
_SIMPLE = str | bytes | int | float | complex | np.generic | np.dtype | enum.Enum | range | type(None) | type(...)

_SHOWN = ("llvmlite.ir.types", "numba.core.types", "highspy")  # modules of kinds of things that show what they are
_STATE = {  # what grows while a process runs, and is read before a program is traced
    f"{PACKAGE}.learners.base._REGISTRY",
    f"{PACKAGE}.common.plugins._REMEMBERED",
    f"{PACKAGE}.kernels.cpu.choice._HANDED_OUT",
    f"{PACKAGE}.kernels.cpu.loaded_code._LOADED",
    f"{PACKAGE}.kernels.cpu.program_files._NUMBERS",
    f"{PACKAGE}.kernels.cpu.switch._WARNED",
    f"{PACKAGE}.kernels.cpu.ffi._KEPT",
    f"{PACKAGE}.kernels.cpu.ffi._TARGETS",
    f"{PACKAGE}.simulation.programs._CLEARED",
    f"{PACKAGE}.simulation.programs._MARK",
}
_NO_CONTENT = {  # kinds of things that are read elsewhere, or that no program is traced from
    "__future__._Feature",
    "_abc._abc_data",
    "_thread._local",
    "_thread.lock",
    "builtins.getset_descriptor",
    "builtins.member_descriptor",
    "_collections._tuplegetter",  # of a NamedTuple, whose fields are read
    "collections._tuplegetter",  # the same since Python 3.12
    "collections.abc._CallableGenericAlias",
    "numba.core.datamodel.manager.DataModelManager",
    "jax._src.config.UserConfig",  # see `switch` and `target`
    "types.GenericAlias",
    "types.UnionType",
    "typing.TypeVar",
    f"{PACKAGE}.simulation.programs.LearnerProgram",  # what is traced of one is given by hand
}
# what makes another function of one; their options are in the module's text
_WRAPPERS = {"PjitFunction", "_lru_cache_wrapper", "CPUDispatcher", "_Intrinsic"}


class _UnreadableError(Exception):
    """Code that can not be followed."""


def fingerprint(*things: Any) -> str | None:
    """Of functions, classes, modules and values, and of all modules of the package that they reach; None: unknown."""
    try:
        return read(*things)[0]
    except Exception:  # whatever it is: what can not be read has no fingerprint
        return None


def read(*things: Any) -> tuple[str, set[str]]:
    """The fingerprint, and the modules that were read for it; raises where there is none."""
    reader = _Reader()
    for thing in things:
        reader.read(thing)
    modules = reader.read_modules()
    return reader.digest.hexdigest(), modules


class _Reader:
    """Reads everything once, in the order in which it is met."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self._met: dict[int, tuple[int, Any]] = {}  # by `id`: a number; and the thing, so that its id stays its own
        self._modules: set[str] = set()  # of the package

    def read_modules(self) -> set[str]:
        """The modules that were met, and those that are met while they are read; their names."""
        done: set[str] = set()
        while left := sorted(self._modules - done):
            module = sys.modules[left[0]]
            done.add(left[0])
            self._say(_text(str(module.__file__)))
            for name, value in sorted(vars(module).items()):
                whole = f"{left[0]}.{name}"
                own = isinstance(value, ModuleType) and value.__name__ == whole  # of a package, if it is loaded
                if not own and not name.startswith("__") and whole not in _STATE:
                    self._say(whole)
                    self.read(value)
        return done

    def read(self, thing: Any) -> None:
        """Add a thing and what it consists of."""
        if isinstance(thing, _SIMPLE):
            self._say(f"{type(thing).__name__} {thing!r}")
        elif id(thing) in self._met:
            self._say(f"number {self._met[id(thing)][0]}")
        else:
            self._met[id(thing)] = len(self._met), thing
            self._say(_name(type(thing)))
            for part in self._parts(thing):
                self.read(part)
            self._say("end")

    def _say(self, text: str) -> None:
        self.digest.update(text.encode(errors="surrogatepass") + b"\0")

    def _parts(self, thing: Any) -> Iterable[Any]:
        """What a thing consists of."""
        if isinstance(thing, ModuleType):
            if not self._is_ours(thing.__name__):
                _check_library(thing)
            return [thing.__name__]
        if type(thing) in (tuple, list):
            return thing
        if type(thing) in (set, frozenset) and all(isinstance(one, _SIMPLE) for one in thing):
            return sorted(map(repr, thing))
        if type(thing) is dict:
            return [part for item in thing.items() for part in item]
        if isinstance(thing, CodeType):
            names = thing.co_names, thing.co_varnames, thing.co_freevars
            return [thing.co_code, thing.co_exceptiontable, *names, thing.co_consts]
        if isinstance(thing, functools.partial):
            return [thing.func, thing.args, thing.keywords]
        if isinstance(thing, np.ndarray | jax.Array):
            array = np.asarray(thing)
            content = array.ravel().tolist() if array.dtype.hasobject else array.tobytes()
            return [array.dtype, array.shape, content, getattr(thing, "weak_type", False)]
        if isinstance(thing, type):
            return self._parts_of_class(thing)
        if type(thing).__module__.startswith(_SHOWN):
            return [str(thing)]
        if callable(thing):
            return self._parts_of_function(thing)
        return self._parts_of_instance(thing)

    def _parts_of_function(self, thing: Any) -> list[Any]:
        if isinstance(thing, MethodType):
            return [thing.__func__, thing.__self__]
        if isinstance(thing, BuiltinFunctionType):
            return [thing.__qualname__, thing.__self__]
        if isinstance(thing, FunctionType) and self._is_ours(thing.__module__):
            home = str(thing.__globals__.get("__name__"))  # not always `__module__`, which a wrapper copies
            self._is_ours(home)
            if thing.__globals__ is not vars(sys.modules[home]):
                raise _UnreadableError(thing)
            closure = [cell.cell_contents for cell in thing.__closure__ or ()]
            return [thing.__qualname__, thing.__code__, thing.__defaults__, thing.__kwdefaults__, closure]
        if type(thing).__name__ in _WRAPPERS and self._is_ours(thing.__module__):
            return [thing.__wrapped__]
        return self._parts_of_instance(thing) if _name(type(thing)) in _NO_CONTENT else [_found(thing)]

    def _parts_of_class(self, thing: type) -> list[Any]:
        if not self._is_ours(thing.__module__):
            return [_name(thing) if _is_pythons(thing) else _found(thing)]
        if issubclass(thing, enum.Enum):
            return [_name(thing), [(one.name, one.value) for one in thing]]
        parts: list[Any] = [_name(thing), *thing.__mro__[1:]]
        for name, value in sorted(vars(thing).items()):
            function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
            if isinstance(function, FunctionType):
                parts += [] if _is_made(function, thing) else [name, function]
            elif isinstance(value, property):
                parts += [name, value.fget, value.fset, value.fdel]
            elif isinstance(value, functools.cached_property):
                parts += [name, value.func]
            elif not name.startswith("__"):
                parts += [name, value]
        return parts

    def _parts_of_instance(self, thing: Any) -> list[Any]:
        kind = type(thing)
        if _name(kind) in _NO_CONTENT:
            return []
        if self._is_ours(kind.__module__):
            if isinstance(thing, tuple):  # a NamedTuple
                return [kind, *thing]
            if is_dataclass(thing):
                return [kind, *(getattr(thing, field.name) for field in fields(thing))]
        raise _UnreadableError(thing)

    def _is_ours(self, module: str | None) -> bool:
        """Whether a module is the package's: then it is read, too."""
        root = (module or "").partition(".")[0]
        if not _is_known(root) or module not in sys.modules:
            raise _UnreadableError(module)
        if root == PACKAGE:
            self._modules.add(str(module))
        return root == PACKAGE


def _name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"


@functools.cache
def _is_known(root: str) -> bool:
    """Whether it is this package, a library whose version is known, or Python's own, not a file that is called so."""
    file = getattr(sys.modules.get(root), "__file__", None)
    if root == PACKAGE or root in LIBRARIES:
        return file is not None and Path(file).parent.name == root
    inside = file is None or (Path(file).is_relative_to(_PYTHON) and "site-packages" not in Path(file).parts)
    return root in sys.stdlib_module_names and inside


def _check_library(module: ModuleType) -> None:
    """No function of the user's own was put into a module of a library that the package uses."""
    for value in list(vars(module).values()):
        if isinstance(value, FunctionType):
            home = str(value.__globals__.get("__name__"))
            if not _is_known(home.partition(".")[0]):
                raise _UnreadableError(home)


def _is_pythons(kind: type) -> bool:
    """Whether a class is written in C and there from the beginning (the type of functions, say)."""
    return not kind.__flags__ & 1 << 9  # Py_TPFLAGS_HEAPTYPE


def _is_made(function: FunctionType, kind: type) -> bool:
    """Whether it is one of the methods that Python makes for a NamedTuple, of its fields and their defaults."""
    return issubclass(kind, tuple) and function.__globals__.get("__name__") in (
        "collections",
        f"namedtuple_{kind.__name__}",
    )


def _found(thing: Any) -> str:
    """The name of something of another package, if that is what one finds under it: nothing is hidden in it then."""
    module = getattr(thing, "__module__", None)
    name = getattr(thing, "__qualname__", None) or getattr(thing, "__name__", None)
    if not module or not name or not _is_known(module.partition(".")[0]):
        raise _UnreadableError(thing)
    there: Any = sys.modules[module]
    for part in name.split("."):
        there = inspect.getattr_static(there, part)
    if there is not thing:
        raise _UnreadableError(thing)
    return f"{module}.{name}"


def _text(path: str) -> str:
    """Of a file that is as it was when it was loaded."""
    file = Path(path)
    if file.stat().st_mtime > _LOADED:
        raise _UnreadableError(path)
    return file.read_text(encoding="utf-8")
