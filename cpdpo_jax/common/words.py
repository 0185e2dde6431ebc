"""Words for people: what a misspelt name was probably meant to be, and numbers in one style."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import SupportsFloat


def did_you_mean(
    name: str,
    known: Iterable[str],
    *,
    most: int = 3,
    cutoff: float = 0.5,
    with_parts: int = 0,
    show: Callable[[str], str] = str,
) -> str:
    """The question "did you mean a or b?" for a name that is not among the known ones; "" where none is near.

    Args:
        name: as it was written.
        known: the names that exist.
        most: at most that many names that look like it, the nearest first.
        cutoff: how alike they must be, from 0 (anything) to 1 (the same).
        with_parts: names that contain `name` are added up to that many in all.
        show: how a name is written, such as `repr` for quotes.
    """
    known = list(known)
    near = [one for one in known if one.lower() == name.lower()][:1]
    near = near or get_close_matches(name, known, n=most, cutoff=cutoff)
    if name and with_parts:
        near += [one for one in known if name in one and one not in near]
        near = near[:with_parts]
    return f"did you mean {' or '.join(map(show, near))}?" if near else ""


def number(value: SupportsFloat, digits: int = 4) -> str:
    """One style for all numbers: some digits, thousands apart; powers of ten for what is very large or small."""
    value = float(value)
    size = abs(value)
    if size and (size >= 1e7 or size < 1e-3):
        return f"{value:.{max(digits - 2, 1)}e}"
    if size >= 10 ** (digits - 1):
        return f"{round(value):,}"
    return f"{value:.{digits}g}"
