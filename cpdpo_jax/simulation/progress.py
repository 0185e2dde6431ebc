"""Progress of a run: a bar on a terminal, one line per minute in a log file."""

from __future__ import annotations

import sys
import threading
import time
import warnings
from typing import Any, TextIO

FIRST, EVERY = 10.0, 60.0  # seconds before the first line of a log, and between lines
KNOWN = 0.01  # fraction of the work after which the remaining time is shown; before, compilation dominates


class Lines:
    """Replaces a bar by about one line per minute, such as "cpdpo: 40% of 3.2e+07 episodes after 120 s"."""

    def __init__(self, total: int, out: TextIO) -> None:
        self.total: int = total
        self.out: TextIO = out
        self.done: int = 0
        self.label: str = ""
        self.started: float = time.monotonic()
        self.due: float = self.started + FIRST
        self.waiting = threading.Timer(FIRST, self.show_compilation)  # a compilation does not call `update`
        self.waiting.daemon = True

    def __enter__(self) -> Lines:
        self.waiting.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self.waiting.cancel()

    def set_description(self, label: str) -> None:
        """Set the label of what is running."""
        self.label = label

    def update(self, n: int) -> None:
        """Add completed work, and print a line if one is due."""
        self.done += n
        now = time.monotonic()
        if now < self.due or not 0 < self.done < self.total:
            return
        self.due = now + EVERY
        self._print(now)

    def show_compilation(self) -> None:
        """Print a line if no work is done yet."""
        if not self.done:
            self._print(time.monotonic())

    def _print(self, now: float) -> None:
        spent, share = now - self.started, self.done / self.total
        left = f", about {spent * (1 - share) / share:.0f} s left" if share >= KNOWN else ""
        where = f" ({self.label})" if self.label else ""
        line = f"cpdpo: {share:.0%} of {self.total:.3g} episodes after {spent:.0f} s{left}{where}"
        print(line, file=self.out, flush=True)


def progress_bar(total: int, show: bool = True) -> Any:
    """A bar if stderr is a terminal, lines if it is not, nothing unless `show`; call its `update(n)`."""
    if show and not sys.stderr.isatty():
        return Lines(total, sys.stderr)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # in a notebook without ipywidgets, tqdm warns and falls back to text
        from tqdm.auto import tqdm

    return tqdm(total=total, unit=" episodes", unit_scale=True, disable=not show, smoothing=0.1)
