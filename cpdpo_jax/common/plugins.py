"""Entry points of installed packages, loaded once, each with the name and version of its package.

    [project.entry-points."cpdpo_jax.learners"]          # in another package's pyproject.toml
    mine = "their_package.learners:MINE"

A package that fails to load is skipped with a warning, so that it does not affect the others.

Functions decorated with `cached_by_name` depend on registered names. Their caches are cleared (`clear_name_caches`)
when a name is unregistered, because another learner may take its place.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from importlib import metadata
from typing import Any, NamedTuple, TypeVar

_CLEAR_CACHE: list[Callable[[], None]] = []
_Function = TypeVar("_Function", bound=Callable[..., Any])


class Plugin(NamedTuple):
    """An entry point of an installed package."""

    name: str
    source: str  # the package and its version, on which results depend
    content: Any


def load_plugins(group: str) -> list[Plugin]:
    """All loadable entry points of a group, sorted by name."""
    plugins = []
    for entry in sorted(metadata.entry_points(group=group)):
        source = f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
        try:
            plugins.append(Plugin(entry.name, source, entry.load()))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            warnings.warn(f"{entry.name!r} of {source} ({group}) is skipped: {reason}", stacklevel=2)
    return plugins


def cached_by_name(function: _Function) -> _Function:
    """`functools.cache` for functions that depend on registered names."""
    cached: Any = functools.cache(function)
    _CLEAR_CACHE.append(cached.cache_clear)
    return cached


def clear_name_caches() -> None:
    """Clear the caches of `cached_by_name`, after a name was unregistered."""
    for clear in _CLEAR_CACHE:
        clear()
