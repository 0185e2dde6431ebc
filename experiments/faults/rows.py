"""The table of a campaign: the tests, their number and the number of failures."""

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
HANG = 600  # seconds after which a call counts as hanging


class Row(NamedTuple):
    """One line of the table."""

    what: str
    tried: int
    wrong: int
    detail: str


def table(rows: list[Row]) -> str:
    """The table for a terminal."""
    return format_table(
        [["what", "tried", "wrong", ""], *([row.what, *map(str, row[1:3]), row.detail] for row in rows)]
    )


def markdown(rows: list[Row]) -> str:
    """The table in Markdown."""
    lines = [f"| {row.what} | {row.tried:,} | {row.wrong} | {row.detail} |" for row in rows]
    return "\n".join(["| what | tried | wrong | |", "|---|---|---|---|", *lines])


@contextlib.contextmanager
def not_longer_than(seconds: float) -> Iterator[None]:
    """Raise TimeoutError if the body hangs."""

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


def same(first: Any, second: Any) -> bool:
    """Whether two lists of tables are bit-identical, apart from durations."""
    if [(a.environment, a.episodes) for a in first] != [(b.environment, b.episodes) for b in second]:
        return False
    for a, b in zip(first, second, strict=True):
        left, right = a.result.data, b.result.data
        if set(left.variables) != set(right.variables):
            return False
        for name in left.variables:
            x, y = np.asarray(left[name].values), np.asarray(right[name].values)
            if x.shape != y.shape or x.tolist().__repr__() != y.tolist().__repr__():
                return False
    return True
