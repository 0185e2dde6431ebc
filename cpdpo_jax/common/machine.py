"""Properties of the machine on which the process runs."""

from __future__ import annotations

import functools
import gc
import hashlib
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager


def cores() -> int:
    """The number of cores available to this process, which may be pinned (`taskset`, a container); at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def cpu_type() -> str:
    """The processor's name and a hash of its features; compilers depend on both, and so does rounding."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            first = file.read().partition("\n\n")[0]
    except OSError:
        first = ""
    lines = dict(line.split(":", 1) for line in first.splitlines() if ":" in line)
    facts = {name.strip(): value.strip() for name, value in lines.items()}
    name = facts.get("model name") or platform.processor() or platform.machine()
    features = facts.get("flags") or facts.get("Features") or ""
    return (
        f"{name} ({hashlib.sha256(' '.join(sorted(features.split())).encode()).hexdigest()[:8]})" if features else name
    )


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Disable Python's cyclic garbage collection, which takes a fifth of the time of tracing a program."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
