"""What the commands say to a person, beside their results."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """A remark for a person, on a terminal or in a log; results go to stdout."""
    print(text, file=sys.stderr, flush=True)


def warn(text: str) -> None:
    """What a person must know, also where no one looks at a terminal."""
    print(f"cpdpo: {text}", file=sys.stderr, flush=True)
