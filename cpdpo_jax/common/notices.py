"""Warnings about this machine or process: at most one per subject, attributed to the user's line."""

from __future__ import annotations

import inspect
import warnings

_INTERNAL = ("cpdpo_jax", "jax", "contextlib", "functools", "threading", "concurrent")  # not the user's code
_ISSUED: set[str] = set()


def warn_once(subject: str, message: str) -> None:
    """One RuntimeWarning per subject and process."""
    if subject not in _ISSUED:
        _ISSUED.add(subject)
        warnings.warn(message, RuntimeWarning, stacklevel=_users_level())


def _users_level() -> int:
    """The `stacklevel` of the nearest line outside of `_INTERNAL`, for a warning in the caller.

    A worker thread has no such line; the warning then names the caller of `warn_once`.
    """
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in _INTERNAL:
        frame, level = frame.f_back, level + 1
    return 2 if frame is None else level
