"""Learners and environments registered by hand, in a script or a notebook: known by a hash of their code.

It is the text of the files that their functions are written in (in a notebook: of the functions), and the values that
the functions have taken along from where they were made, or read from where they stand. What has no text has a hash of
its own in every process: then nothing that is stored is taken for it. Not seen: a change, elsewhere, of a module that
such a file imports.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
from collections.abc import Iterator
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from cpdpo_jax import learners
from cpdpo_jax.envs import registry
from cpdpo_jax.learners import base

_NO_TEXT = os.urandom(8).hex()


def code_of(learner: str, environment: str, imported: set[str]) -> list[str]:
    """The hashes of those of the two that were registered by hand; `imported`: names that files of imports brought."""
    found = []
    if learner in base.registered() - learners.OURS and learner not in imported:
        found.append(_digest(learners.get(learner)))
    family = registry.registered(environment)
    if family is not None and environment not in imported:
        found.append(_digest(family))
    return [f"by hand {one}" for one in found]


def _digest(content: Any) -> str:
    return hashlib.sha256("\0".join(_texts(content, set())).encode()).hexdigest()[:16]


def _texts(content: Any, seen: set[int]) -> Iterator[str]:
    """What something consists of, as texts, in an order of its own."""
    if isinstance(content, str | bytes | int | float | complex | type(None)):
        yield repr(content)
    elif id(content) not in seen and not inspect.ismodule(content):
        seen.add(id(content))
        for part in _parts(content):
            yield from [part.text] if isinstance(part, _Text) else _texts(part, seen)


class _Text(NamedTuple):
    text: str


def _parts(content: Any) -> Iterator[Any]:
    """What a thing holds; the text of a function or class as `_Text`."""
    if hasattr(content, "__wrapped__"):  # by `jax.jit`, say
        yield content.__wrapped__
    elif isinstance(content, functools.partial):
        yield from (content.func, content.args, content.keywords)
    elif inspect.isfunction(content):
        yield _Text(content.__qualname__ + _source(content))
        if not _is_known(content):
            yield from (content.__defaults__, content.__kwdefaults__, *map(_content, content.__closure__ or ()))
            yield from (content.__globals__[name] for name in _names(content.__code__) if name in content.__globals__)
    elif isinstance(content, dict | list | tuple):
        yield from (part for item in content.items() for part in item) if isinstance(content, dict) else content
    elif hasattr(content, "__array__"):
        array = np.asarray(content)
        yield _Text(f"{array.dtype} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}")
    elif isinstance(content, type):
        yield _Text(_source(content))
    else:
        yield _Text(_source(type(content)))
        yield vars(content) if hasattr(content, "__dict__") else None


def _names(code: CodeType) -> list[str]:
    """The global names that a function, or one inside of it, reads."""
    inner = [name for one in code.co_consts if isinstance(one, CodeType) for name in _names(one)]
    return sorted({*code.co_names, *inner})


def _is_known(content: Any) -> bool:
    """Ours or jax's: their versions are checked elsewhere."""
    return getattr(content, "__module__", "").partition(".")[0] in ("cpdpo_jax", "jax", "jaxlib", "numpy", "builtins")


def _source(content: Any) -> str:
    """The text of the file that something is written in, or its own where a file is made of cells."""
    if _is_known(content):
        return f"{content.__module__}.{content.__qualname__}"
    try:
        path = inspect.getsourcefile(content)
        if path is not None and os.path.isfile(path) and "ipykernel" not in path:
            with open(path, encoding="utf-8") as file:
                return file.read()
        return inspect.getsource(content)
    except (OSError, TypeError, UnicodeDecodeError):
        return _NO_TEXT


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return None
