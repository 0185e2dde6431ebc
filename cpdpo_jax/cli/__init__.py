"""The command line `cpdpo`, also `python -m cpdpo_jax.cli`: arguments, commands, bench."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; Ctrl-C is heard from the first import on, in silence."""
    try:
        from cpdpo_jax.cli import entry

        return entry.main(arguments)
    except KeyboardInterrupt:
        return 130
