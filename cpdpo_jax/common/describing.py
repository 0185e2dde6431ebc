"""The hook behind `CMDP.describe`: the words come from `envs.describe`, which knows the exact optimum.

The vocabulary lies below the rooms that build and solve CMDPs and must not import them. So the package's `__init__`,
which is above all rooms and loaded before any of them, puts a function here; `CMDP.describe` calls it. Free of jax, so
that `import cpdpo_jax` stays so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_describer: Callable[[Any], str] | None = None


def register(describer: Callable[[Any], str]) -> None:
    """Let `CMDP.describe` return what `describer(cmdp)` says; the last one registered is asked."""
    global _describer
    _describer = describer


def describe(cmdp: Any) -> str:
    """A CMDP in words, by the function that was registered."""
    if _describer is None:
        raise RuntimeError("no describer of CMDPs is registered; import cpdpo_jax, which registers envs.describe.")
    return _describer(cmdp)
