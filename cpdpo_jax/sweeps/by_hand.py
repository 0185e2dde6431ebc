"""Learners and environments registered by hand, in a script or a notebook: known by a hash of their code.

It is the text of the files that their functions are written in (in a notebook: of the functions), and the values that
the functions have taken along from where they were made. What has no text has a hash of its own in every process: then
nothing that is stored is taken for it. Not seen: a change, elsewhere, of a module that such a file imports.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import os
from collections.abc import Iterator
from typing import Any

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
    texts = sorted(set(_texts(content, set())))
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def _texts(content: Any, seen: set[int]) -> Iterator[str]:
    """What something consists of, as texts."""
    if id(content) in seen:
        return
    seen.add(id(content))
    if dataclasses.is_dataclass(content) and not isinstance(content, type):
        for field in dataclasses.fields(content):
            yield from _texts(getattr(content, field.name), seen)
    elif isinstance(content, functools.partial):
        for part in (content.func, content.args, content.keywords):
            yield from _texts(part, seen)
    elif inspect.isfunction(content):
        yield content.__qualname__ + _source(content)
        for part in (content.__defaults__, content.__kwdefaults__, *map(_content, content.__closure__ or ())):
            yield from _texts(part, seen)
    elif isinstance(content, dict | list | tuple):
        for part in content.items() if isinstance(content, dict) else content:
            yield from _texts(part, seen)
    elif hasattr(content, "__array__"):
        yield hashlib.sha256(np.asarray(content).tobytes()).hexdigest()
    elif isinstance(content, str | bytes | int | float | complex | bool | type(None)):
        yield repr(content)
    else:  # a class, or an object of one
        yield _source(content if isinstance(content, type) else type(content))


def _source(content: Any) -> str:
    """The text of the file that something is written in, or its own where a file is made of cells."""
    if getattr(content, "__module__", "").partition(".")[0] in ("cpdpo_jax", "jax", "builtins"):
        return f"{content.__module__}.{content.__qualname__}"  # their versions are checked elsewhere
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
