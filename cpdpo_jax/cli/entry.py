"""The entry of the command line: parse what is asked, run it, and say what went wrong in one line.

Exit codes: 0 done, 1 the run failed (a full disk, values that are not finite), 2 a mistake in what was asked (nothing
was written), 130 stopped by Ctrl-C. Importing this does not import jax; `commands` does the work.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Sequence

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes

from cpdpo_jax.cli.arguments import Command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; a user's mistake is one line on stderr."""
    said = io.StringIO()
    description = (
        "Online learning in constrained MDPs, simulated in batches: CPD-PO and its rivals. Start with: cpdpo demo"
    )
    try:
        with contextlib.redirect_stderr(said):
            asked = tyro.cli(
                OmitArgPrefixes[FlagCreatePairsOff[Command]],  # pyright: ignore[reportArgumentType]
                args=arguments,
                prog="cpdpo",
                description=description,
            )
    except SystemExit as end:
        if end.code:
            print(f"cpdpo: {_in_one_line(said.getvalue())}", file=sys.stderr)
        return int(end.code or 0)
    try:
        from cpdpo_jax.cli.commands import run

        return run(asked)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `cpdpo list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if asked.debug:
            raise
        mistake = isinstance(error, (ValueError, OSError)) and not _full(error)
        print(f"cpdpo: {_sentence(error)}", file=sys.stderr)
        return 2 if mistake else 1


def _full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _sentence(error: Exception) -> str:
    """What went wrong, for a person."""
    if _full(error):
        where = getattr(error, "filename", None) or "DIRECTORY"
        return f"{where}: the disk is full. What was finished is safe; free some space, then: cpdpo resume {where}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    if isinstance(error, (ValueError, ArithmeticError, OSError)):
        return str(error)
    return f"{type(error).__name__}: {error} (this is a fault of cpdpo; --debug shows where)"


def _in_one_line(box: str) -> str:
    """The message in tyro's box: its lines up to the first rule, without the frame."""
    lines = [line.strip("│╭╮╰╯ \n") for line in box.splitlines()]
    found: list[str] = []
    for line in lines[1:]:
        if line.startswith("──"):
            break
        found.append(line)
    return " ".join(" ".join(found or lines).split()) + "; see cpdpo --help"
