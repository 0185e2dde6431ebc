"""The table of a campaign: what was done, how often, and how often it went wrong."""

from __future__ import annotations

import contextlib
import io
import signal
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from cpdpo_jax import cli
from cpdpo_jax.results.tables import format_table

ENVIRONMENT = {"name": "random", "layers": 2, "states": 2, "actions": 2, "constraints": 1}
HANG = 120  # seconds after which something hangs


class Row(NamedTuple):
    """One line of the table."""

    what: str
    tried: int
    wrong: int
    detail: str


def table(rows: list[Row]) -> str:
    """For a terminal."""
    return format_table(
        [["what", "tried", "wrong", ""], *([one.what, *map(str, one[1:3]), one.detail] for one in rows)]
    )


def markdown(rows: list[Row]) -> str:
    """For the page."""
    lines = [f"| {one.what} | {one.tried:,} | {one.wrong} | {one.detail} |" for one in rows]
    return "\n".join(["| what | tried | wrong | |", "|---|---|---|---|", *lines])


@contextlib.contextmanager
def not_longer_than(seconds: float) -> Iterator[None]:
    """TimeoutError where something hangs."""

    def hangs(*_: Any) -> None:
        raise TimeoutError(f"no end after {seconds} s")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(int(seconds))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def command(arguments: list[str]) -> tuple[int | None, str, str]:
    """Exit code, stdout and stderr of `cpdpo`, in this process; None: an exception, whose name is in stderr."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), not_longer_than(HANG):
            code = cli.main(arguments)
    except Exception as error:
        return None, out.getvalue(), f"{err.getvalue()}{type(error).__name__}: {error}"
    return code, out.getvalue(), err.getvalue()


def same(one: Any, other: Any) -> bool:
    """Whether two lists of tables hold the same bits; times apart."""
    if [(a.environment, a.episodes) for a in one] != [(b.environment, b.episodes) for b in other]:
        return False
    for a, b in zip(one, other, strict=True):
        left, right = a.result.data, b.result.data
        if set(left.variables) != set(right.variables):
            return False
        for name in left.variables:
            x, y = np.asarray(left[name].values), np.asarray(right[name].values)
            if x.shape != y.shape or x.tolist().__repr__() != y.tolist().__repr__():
                return False
    return True
