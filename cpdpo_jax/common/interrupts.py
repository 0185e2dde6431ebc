"""Ctrl-C and a scheduler's SIGTERM: the first signal requests a stop, the second ends the process.

Python's default handler raises KeyboardInterrupt at any point of the main thread. Inside a callback or a destructor the
exception is printed and lost. A run therefore sets a flag instead and stops when its current calls return.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Whether a stop was requested, and whether it was acknowledged."""

    def __init__(self) -> None:
        self.requested: bool = False
        self.acknowledged: bool = False

    def acknowledge(self) -> bool:
        """Whether a stop was requested; if so, the caller must end its work."""
        self.acknowledged = self.requested
        return self.requested


_ACTIVE: Stop | None = None


@contextlib.contextmanager
def interrupts() -> Iterator[Stop]:
    """A context of the main thread in which Ctrl-C sets a flag; the previous handlers are restored afterwards.

    Nested contexts share the flag. Ignored signals stay ignored, and the user's own handlers stay in place. If the flag
    was not acknowledged, KeyboardInterrupt is raised at the end. In other threads the flag is never set, because Python
    delivers signals to the main thread only.
    """
    global _ACTIVE
    if threading.current_thread() is not threading.main_thread() or _ACTIVE is not None:
        is_main = threading.current_thread() is threading.main_thread()
        yield _ACTIVE if is_main and _ACTIVE is not None else Stop()
        return
    stop = Stop()

    def handler(number: int, frame: Any) -> None:
        if stop.requested:
            exit_immediately()
        stop.requested = True

    before = {number: signal.getsignal(number) for number in SIGNALS}
    before = {n: handler for n, handler in before.items() if handler in (signal.default_int_handler, exit_immediately)}
    _ACTIVE = stop
    try:
        for number in before:
            signal.signal(number, handler)
        yield stop
    finally:
        _ACTIVE = None
        for number, previous in before.items():
            signal.signal(number, previous)
    if stop.requested and not stop.acknowledged:
        raise KeyboardInterrupt


def raise_if_requested() -> None:
    """Raise KeyboardInterrupt if a stop was requested in this thread's context: for work that stores nothing yet."""
    if threading.current_thread() is threading.main_thread() and _ACTIVE is not None and _ACTIVE.requested:
        raise KeyboardInterrupt


def exit_immediately(number: int = 0, frame: Any = None) -> NoReturn:
    """End the process with code 130, as a signal handler or a call; atomic writes keep all files intact."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the main thread may be writing to it
            stream.flush()
    os._exit(130)
