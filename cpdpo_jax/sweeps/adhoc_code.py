"""Hashes of learners and environments that a script or a notebook registers without `imports`.

A hash covers the source files of their functions and all user modules that these import (`hashing.user_code`; in a
notebook the source of the functions and the modules that they name), and the values that the functions captured or read
from globals. Code without source has a different hash in every process, so no stored block is reused for it.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from cpdpo_jax import learners
from cpdpo_jax.envs import registry
from cpdpo_jax.learners import base
from cpdpo_jax.sweeps import hashing

_NO_SOURCE = os.urandom(8).hex()


def code_hashes(learner: str, environment: str, imported: set[str]) -> list[str]:
    """The hashes of a learner and an environment, without those that are built in, installed or in `imported`."""
    adhoc = learner in base.registered() - learners.BUILT_IN
    adhoc = adhoc or bool(base.source(learner) and _is_editable(learners.get(learner)))
    hashes = [_digest(learners.get(learner))] if adhoc and learner not in imported else []
    family = registry.registered(environment)
    family = family or ((other := registry.installed(environment)) and _is_editable(other) and other)
    if family and environment not in imported:
        hashes.append(_digest(family))
    return [f"by hand {digest}" for digest in hashes]


def _is_editable(content: Any) -> bool:
    """Whether the code of a learner or function was not installed by pip, so that a version does not identify it."""
    path = getattr(sys.modules.get(getattr(content, "update", content).__module__), "__file__", None)
    return path is not None and not hashing.is_installed(Path(path).absolute())


def _digest(content: Any) -> str:
    return hashing.digest({str(i): text.encode() for i, text in enumerate(_texts(content, set()))})


def _texts(content: Any, seen: set[int]) -> Iterator[str]:
    """The texts that determine an object, in a fixed order."""
    if isinstance(content, str | bytes | int | float | complex | type(None)):
        yield repr(content)
    elif id(content) not in seen:
        seen.add(id(content))
        for part in _parts(content):
            yield from [part.text] if isinstance(part, _Text) else _texts(part, seen)


class _Text(NamedTuple):
    text: str


def _parts(content: Any) -> Iterator[Any]:
    """The parts of an object; the source of a function, class or module as `_Text`."""
    if inspect.ismodule(content):
        path = getattr(content, "__file__", None)
        if path and not hashing.is_installed(Path(path).absolute()):
            yield _Text(_source(content))
    elif hasattr(content, "__wrapped__"):  # for example by `jax.jit`
        yield content.__wrapped__
    elif isinstance(content, functools.partial):
        yield from (content.func, content.args, content.keywords)
    elif inspect.isfunction(content):
        yield _Text(content.__qualname__ + _source(content))
        if not _is_library(content):
            yield from (content.__defaults__, content.__kwdefaults__, *map(_cell_value, content.__closure__ or ()))
            yield from (content.__globals__[name] for name in _names(content.__code__) if name in content.__globals__)
    elif isinstance(content, dict | list | tuple):
        yield from (part for item in content.items() for part in item) if isinstance(content, dict) else content
    elif hasattr(content, "__array__"):
        array = np.asarray(content)
        yield _Text(f"{array.dtype} {array.shape} {hashing.digest({'': array.tobytes()})}")
    elif isinstance(content, type):
        yield _Text(_source(content))
    else:
        yield _Text(_source(type(content)))
        yield vars(content) if hasattr(content, "__dict__") else None


def _names(code: CodeType) -> list[str]:
    """The global names that a function or its inner functions read."""
    inner = [name for constant in code.co_consts if isinstance(constant, CodeType) for name in _names(constant)]
    return sorted({*code.co_names, *inner})


def _is_library(content: Any) -> bool:
    """Whether an object belongs to a package whose version is recorded anyway (`provenance`)."""
    name = getattr(content, "__module__", None) or ""
    return name.partition(".")[0] in (hashing.PACKAGE, "jax", "jaxlib", "numpy", "builtins")


def _source(content: Any) -> str:
    """The hash of an object's source file and of its imports, or the object's source in a notebook."""
    if _is_library(content):
        return f"{content.__module__}.{content.__qualname__}"
    try:
        path = inspect.getsourcefile(content)
        if path is None or not os.path.isfile(path) or "ipykernel" in path:
            return inspect.getsource(content)
        return hashing.digest(hashing.user_code({Path(path).name: Path(path).absolute()}))
    except (OSError, TypeError):
        return _NO_SOURCE


def _cell_value(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return None
