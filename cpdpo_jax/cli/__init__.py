"""The command line `cpdpo`, also `python -m cpdpo_jax.cli`: arguments and commands."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from cpdpo_jax.common.interrupts import SIGNALS, exit_immediately

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; Ctrl-C ends the process at once, except where a run stores its state.

    Once the command has ended, Ctrl-C and SIGTERM are ignored: a signal that arrives while Python shuts down would
    otherwise replace the exit code of work that is already finished.
    """
    defaults = (signal.default_int_handler, signal.SIG_DFL)  # a background process ignores Ctrl-C; that stays
    ours = [number for number in SIGNALS if arguments is None and signal.getsignal(number) in defaults]
    for number in ours:
        signal.signal(number, exit_immediately)
    try:
        from cpdpo_jax.cli import entry

        return entry.main(arguments)
    except KeyboardInterrupt:
        return 130
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_IGN)
