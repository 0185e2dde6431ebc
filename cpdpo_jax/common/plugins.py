"""What installed packages bring along: their entry points, loaded once, each with the package that it comes from.

    [project.entry-points."cpdpo_jax.learners"]          # in another package's pyproject.toml
    mine = "their_package.learners:MINE"

A package that fails to load is named in a warning and left out: it must not keep others from working.

What is computed of a registered name is `remembered` until a name is taken back (`forget_names`), by a user, or
because a file of his own has changed: another learner of the same name must not get the plan of the first.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from importlib import metadata
from typing import Any, NamedTuple, TypeVar

_REMEMBERED: list[Callable[[], None]] = []
_Function = TypeVar("_Function", bound=Callable[..., Any])


class Plugin(NamedTuple):
    """An entry point of an installed package."""

    name: str
    source: str  # the package and its version: part of what determines a result
    content: Any


def installed(group: str) -> list[Plugin]:
    """All entry points of a group that can be loaded, in the order of their names."""
    found = []
    for entry in sorted(metadata.entry_points(group=group)):
        source = f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
        try:
            found.append(Plugin(entry.name, source, entry.load()))
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
            warnings.warn(f"{entry.name!r} of {source} ({group}) is left out: {told}", stacklevel=2)
    return found


def remembered(function: _Function) -> _Function:
    """`functools.cache` for what depends on registered names."""
    cached: Any = functools.cache(function)
    _REMEMBERED.append(cached.cache_clear)
    return cached


def forget_names() -> None:
    """A name was taken back: what was remembered by names is computed anew."""
    for clear in _REMEMBERED:
        clear()
