"""What installed packages bring along: their entry points, loaded once, each with the package that it comes from.

    [project.entry-points."cpdpo_jax.learners"]          # in another package's pyproject.toml
    mine = "their_package.learners:MINE"

A package that fails to load is named in a warning and left out: it must not keep others from working.
"""

from __future__ import annotations

import warnings
from importlib import metadata
from typing import Any, NamedTuple


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
