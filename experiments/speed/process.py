"""Measurements run in fresh processes, each pinned to its cores.

The threads of jax cannot be pinned after they have started, and compile times need a process that has compiled nothing.
This module imports neither jax nor the package, so that the environment below is set before they are loaded.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any


@contextmanager
def process(cores: int, environment: Mapping[str, str] | None = None) -> Iterator[Callable[..., Any]]:
    """A fresh process on the first `cores` of the allowed cores: call it with a function and its arguments."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, _begin, (cores, dict(environment or {}))) as pool:
        yield lambda function, *arguments: pool.submit(function, *arguments).result()


def cache(directory: str) -> dict[str, str]:
    """The environment variables with which jax stores all compiled programs in a directory."""
    return {"JAX_COMPILATION_CACHE_DIR": directory, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}


def _begin(cores: int, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
