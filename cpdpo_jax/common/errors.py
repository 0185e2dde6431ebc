"""Errors that are nobody's mistake in what was asked."""

from __future__ import annotations


class WorkerError(RuntimeError):
    """A machine that ran blocks for us failed, or was lost; what is done is kept."""
