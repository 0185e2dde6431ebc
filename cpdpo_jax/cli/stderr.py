"""Messages of the commands to stderr; results go to stdout."""

from __future__ import annotations

import sys


def log(text: str) -> None:
    """Print a message to stderr."""
    print(text, file=sys.stderr, flush=True)


def warn(text: str) -> None:
    """Print a warning to stderr."""
    print(f"cpdpo: {text}", file=sys.stderr, flush=True)
