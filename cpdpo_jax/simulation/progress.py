"""How far a run has come, for people: a bar on a terminal, a line now and then in a log file."""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any, TextIO

FIRST, EVERY = 10.0, 60.0  # seconds until a log has its first line, and between two
KNOWN = 0.01  # the share after which the time left is told: before, most of it went into compiling


class Lines:
    """Stands where a bar would: one line about a minute, such as "cpdpo: 40 % of 3.2e+07 episodes after 120 s"."""

    def __init__(self, total: int, out: TextIO) -> None:
        self.total, self.out, self.done, self.label = total, out, 0, ""
        self.started = time.monotonic()
        self.due = self.started + FIRST

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def set_description(self, label: str) -> None:
        """What is running now."""
        self.label = label

    def update(self, n: int) -> None:
        """More work is done; says so if it is time."""
        self.done += n
        now = time.monotonic()
        if now < self.due or not 0 < self.done < self.total:
            return
        self.due = now + EVERY
        spent, share = now - self.started, self.done / self.total
        left = f", about {spent * (1 - share) / share:.0f} s left" if share >= KNOWN else ""
        where = f" ({self.label})" if self.label else ""
        line = f"cpdpo: {share:.0%} of {self.total:.3g} episodes after {spent:.0f} s{left}{where}"
        print(line, file=self.out, flush=True)


def progress_bar(total: int, show: bool = True) -> Any:
    """A bar where stderr is a terminal, lines where it is not; neither if not `show`. Takes `update(n)`."""
    if show and not sys.stderr.isatty():
        return Lines(total, sys.stderr)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # in a notebook without ipywidgets the bar is one of letters
        from tqdm.auto import tqdm

    return tqdm(total=total, unit=" episodes", unit_scale=True, disable=not show, smoothing=0.1)
