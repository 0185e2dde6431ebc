"""The machine this process runs on."""

from __future__ import annotations

import functools
import gc
import hashlib
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager


def cores() -> int:
    """Cores that this process may use: those it is pinned to (`taskset`, a container), else all; at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def cpu_type() -> str:
    """The processor's name, and a hash of what it can do: compilers use both, and round accordingly."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            first = file.read().partition("\n\n")[0]
    except OSError:
        first = ""
    lines = dict(line.split(":", 1) for line in first.splitlines() if ":" in line)
    facts = {name.strip(): value.strip() for name, value in lines.items()}
    name = facts.get("model name") or platform.processor() or platform.machine()
    can = facts.get("flags") or facts.get("Features") or ""
    return f"{name} ({hashlib.sha256(' '.join(sorted(can.split())).encode()).hexdigest()[:8]})" if can else name


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Python looks for cycles of dead objects less: a fifth of the time it takes to trace a program went into that."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
