"""The machine this process runs on."""

from __future__ import annotations

import os


def cores() -> int:
    """Cores that this process may use: those it is pinned to (`taskset`, a container), else all; at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
