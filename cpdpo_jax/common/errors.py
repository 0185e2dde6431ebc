"""Errors that are not caused by the user's input, and the names of learners in stack traces."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class WorkerError(RuntimeError):
    """A worker machine failed or was lost; finished work is kept."""


@contextlib.contextmanager
def errors_of_learner(name: str) -> Iterator[None]:
    """Add the learner's name to the stack trace of an error raised inside; also a decorator."""
    try:
        yield
    except Exception as error:
        error.add_note(f"The error occurred in a run of learner {name!r}.")
        raise
