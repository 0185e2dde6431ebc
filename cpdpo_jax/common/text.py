"""Text for users: suggestions for misspelt names, counts, number formats and file names."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import SupportsFloat


def did_you_mean(
    name: str,
    known: Iterable[str],
    *,
    most: int = 3,
    with_parts: int = 0,
) -> str:
    """The question "did you mean a or b?" for an unknown name; "" if no known name is similar.

    Args:
        name: the unknown name.
        known: the names that exist.
        most: maximum number of similar names, the most similar first.
        with_parts: names that contain `name` are added up to this total number.
    """
    known = list(known)
    near = [other for other in known if other.lower() == name.lower()][:1]
    near = near or get_close_matches(name, known, n=most, cutoff=0.5)
    if name and with_parts:
        near += [other for other in known if name in other and other not in near]
        near = near[:with_parts]
    return f"did you mean {' or '.join(near)}?" if near else ""


def counted(n: int, noun: str) -> str:
    """A count and its noun, which is regular: "1 block", "2,000 blocks"."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def shown(value: object, longest: int = 200) -> str:
    """A value in an error message: its `repr`, shortened if it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python does not write integers of more than 4,300 digits
        return "a value with thousands of digits"
    return text if len(text) <= longest else f"{text[:20]}... ({len(text)} characters)"


def format_number(value: SupportsFloat, digits: int = 4) -> str:
    """A number with significant digits and thousands separators; very large or small ones in scientific notation."""
    value = float(value)
    size = abs(value)
    if size and (size >= 1e7 or size < 1e-3):
        return f"{value:.{max(digits - 2, 1)}e}"
    if size >= 10 ** (digits - 1):
        return f"{round(value):,}"
    return f"{value:.{digits}g}"


def column_format(values: Iterable[SupportsFloat], digits: int = 4) -> Callable[[SupportsFloat], str]:
    """A common format for the numbers of a column: the same number of decimals, or scientific notation for all.

    The largest number has at least `digits` digits; if some are below 10, at least one decimal is shown. Non-finite
    numbers become "-".
    """
    sizes = [abs(float(v)) for v in values if v is not None and math.isfinite(float(v)) and float(v) != 0]
    largest, least = max(sizes, default=0.0), min(sizes, default=0.0)
    spec = f".{max(digits - 2, 1)}e"
    if not sizes or 1e-3 <= largest < 1e7:
        decimals = digits - 1 - math.floor(math.log10(largest)) if sizes else 0
        spec = f",.{max(decimals, int(least < 10), 0) if sizes else 0}f"

    def show(value: SupportsFloat) -> str:
        value = float(value)
        if not math.isfinite(value):
            return "-"
        text = f"{value:{spec}}"
        return text.replace("-", "", 1) if float(text.replace(",", "")) == 0 else text  # not -0.0

    return show


def file_stem(text: str, ending: str) -> str:
    """A file name without suffix from any text: letters, digits, dots and dashes, then the ending.

    A text longer than 60 letters is truncated and followed by a hash of the whole text, so that names stay distinct.
    """
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-")
    if len(plain) > 60:
        plain = f"{plain[:60].rstrip('-.')}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return f"{plain}-{ending}"
