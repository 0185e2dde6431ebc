"""What a program would be traced from: a fingerprint of the package's code as it is in memory, not in its files.

Begun at a function or a learner, all modules are read that it can reach inside the package. A constant or a function
that was replaced at run time, in a notebook say, is another fingerprint; where something was put in whose code can not
be followed, a function of the user's own first of all, there is none. Not seen: a change of jax or NumPy themselves.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import inspect
import sys
from collections.abc import Iterable
from types import CodeType, ModuleType
from typing import Any

import numpy as np

_PACKAGE = __name__.partition(".")[0]
_LIBRARIES = {"jax", "jaxlib", "numpy", "scipy", "optax", "chex", "tqdm", "highspy"}  # whose versions tell enough
_KNOWN = {_PACKAGE} | _LIBRARIES | sys.stdlib_module_names
_STATE = {"_REGISTRY", "_REMEMBERED", "_WARNED"}  # what grows while a process runs, and is read before one is traced
_SAY_ENOUGH = {"typing", "types", "collections", "collections.abc", "jax._src.config"}  # kinds that are callable, too
_SIMPLE = str | bytes | int | float | complex | np.generic | np.dtype | enum.Enum | type(None) | type(Ellipsis)


class _UnreadableError(Exception):
    """Code that can not be followed."""


def fingerprint(*things: Any) -> str | None:
    """Of functions, classes, modules and values, and of all modules of the package that they reach.

    None: there is something among them that can not be followed.
    """
    reader = _Reader()
    try:
        for thing in things:
            reader.read(thing)
        reader.read_modules()
    except _UnreadableError:
        return None
    return reader.digest.hexdigest()


class _Reader:
    """Reads everything once, in the order in which it is met."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self._met: dict[
            int, tuple[int, Any]
        ] = {}  # by `id`, with a number; the things are kept, and with them their ids
        self._modules: dict[str, ModuleType] = {}  # of the package

    def read_modules(self) -> None:
        """The modules that were met, and those that are met while they are read."""
        done: set[str] = set()
        while left := sorted(self._modules.keys() - done):
            done.add(left[0])
            for name, value in sorted(vars(self._modules[left[0]]).items()):
                own = isinstance(value, ModuleType) and value.__name__ == f"{left[0]}.{name}"  # of a package, if loaded
                if not own and not name.startswith("__") and name not in _STATE:
                    self._say(f"{left[0]}.{name}")
                    self.read(value)

    def read(self, thing: Any) -> None:
        """Add a thing and what it consists of."""
        if isinstance(thing, _SIMPLE):
            self._say(f"{type(thing).__name__} {thing!r}")
        elif id(thing) in self._met:
            self._say(f"number {self._met[id(thing)][0]}")
        else:
            self._met[id(thing)] = len(self._met), thing
            self._say(f"{type(thing).__module__}.{type(thing).__qualname__}")
            for part in self._parts(thing):
                self.read(part)
            self._say("end")

    def _say(self, text: str) -> None:
        self.digest.update(text.encode(errors="surrogatepass") + b"\0")

    def _parts(self, thing: Any) -> Iterable[Any]:
        """What a thing consists of."""
        if isinstance(thing, ModuleType):
            self._is_ours(thing.__name__)
            return [thing.__name__]
        if isinstance(thing, type):
            return self._parts_of_class(thing)
        if isinstance(thing, CodeType):
            names = thing.co_names, thing.co_varnames, thing.co_freevars
            return [thing.co_code, thing.co_exceptiontable, *names, thing.co_consts]
        if isinstance(thing, dict):
            return [part for item in thing.items() for part in item]
        if isinstance(thing, tuple | list):
            return thing
        if isinstance(thing, set | frozenset):
            return sorted(map(repr, thing))
        if isinstance(thing, staticmethod | classmethod | property):
            return [getattr(thing, "fget", None) or thing.__func__]  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(thing, functools.partial):
            return [thing.func, thing.args, thing.keywords]
        if inspect.isroutine(thing) or hasattr(thing, "__wrapped__"):
            return self._parts_of_function(thing)
        if hasattr(thing, "__array__"):
            array = np.asarray(thing)
            return [array.dtype, array.shape, array.tobytes()]
        return self._parts_of_instance(thing)

    def _parts_of_function(self, thing: Any) -> list[Any]:
        module = getattr(thing, "__module__", None)
        parts = [f"{module}.{getattr(thing, '__qualname__', '')}", getattr(thing, "__wrapped__", None)]
        if inspect.ismethod(thing):
            parts += [thing.__func__, thing.__self__]
        if self._is_ours(module) and inspect.isfunction(thing):
            closure = [_content(cell) for cell in thing.__closure__ or ()]
            parts += [thing.__code__, thing.__defaults__, thing.__kwdefaults__, closure]
        return parts

    def _parts_of_class(self, thing: type) -> list[Any]:
        parts: list[Any] = [f"{thing.__module__}.{thing.__qualname__}"]
        if self._is_ours(thing.__module__):
            parts += thing.__mro__[1:]
            for name, value in sorted(vars(thing).items()):
                made = inspect.isfunction(value) and value.__module__ == f"namedtuple_{thing.__name__}"
                if not made and (inspect.isfunction(value) or not name.startswith("_")):
                    parts += [name, value]
        return parts

    def _parts_of_instance(self, thing: Any) -> list[Any]:
        """Of a class of the package its fields; what others make says enough by its kind, if there is no code in it."""
        kind = type(thing)
        if self._is_ours(kind.__module__):
            fields = dataclasses.fields(thing) if dataclasses.is_dataclass(thing) else ()
            return [kind, *(getattr(thing, field.name) for field in fields)]
        if callable(thing) and kind.__module__ not in _SAY_ENOUGH:
            raise _UnreadableError(repr(kind))
        return []

    def _is_ours(self, module: str | None) -> bool:
        """Whether a module is the package's: then it is read, too."""
        root = (module or "builtins").partition(".")[0]
        if root not in _KNOWN:
            raise _UnreadableError(module)
        if root == _PACKAGE and module in sys.modules:
            self._modules.setdefault(str(module), sys.modules[str(module)])
        return root == _PACKAGE


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return None
