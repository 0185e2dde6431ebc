"""The entry of the command line: parse what is asked, run it, and say what went wrong in one line.

Exit codes: 0 done, 1 the run failed (a full disk, values that are not finite), 2 a mistake in what was asked (nothing
was written), 130 stopped by Ctrl-C. Importing this does not import jax; `commands` does the work.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import re
import sys
from collections.abc import Sequence
from importlib import metadata

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes

from cpdpo_jax.cli.arguments import COMMANDS, Command
from cpdpo_jax.common import files
from cpdpo_jax.common.errors import WorkerError
from cpdpo_jax.common.words import did_you_mean


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; a user's mistake is one line on stderr."""
    arguments = sys.argv[1:] if arguments is None else arguments
    arguments = {"help": ["--help"], "version": ["--version"], "": ["--help"]}.get(" ".join(arguments), arguments)
    if list(arguments) == ["--version"]:
        print(f"cpdpo {metadata.version('cpdpo_jax')}")
        return 0
    _print_what_the_terminal_can()
    if not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        hint = did_you_mean(arguments[0], COMMANDS, most=1) or f"there are {', '.join(COMMANDS)}."
        print(f"cpdpo: there is no command {arguments[0]!r}; {hint}", file=sys.stderr)
        return 2
    if twice := _given_twice(arguments):
        together = f"give all its values at once: {twice} A B" if twice in _SEVERAL else "give it once"
        print(f"cpdpo: {twice} is given twice, and the first would be dropped; {together}.", file=sys.stderr)
        return 2
    said = io.StringIO()
    description = (
        "Online learning in constrained MDPs, simulated in batches: CPD-PO and its rivals. Start with: cpdpo demo. "
        "cpdpo --version says which version this is."
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
            command = f" {arguments[0]}" if arguments[0] in COMMANDS else ""
            print(f"cpdpo: {_in_one_line(said.getvalue())}; see cpdpo{command} --help", file=sys.stderr)
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
        if _interrupted(error):
            return 130
        if asked.debug:
            raise
        mistake = isinstance(error, (ValueError, OSError)) and not files.is_full(error)
        print(f"cpdpo: {_sentence(error)}", file=sys.stderr)
        return 2 if mistake else 1


_SEVERAL = ("--learner", "--env", "--episodes", "--setting", "--set", "--sizes", "--part")  # flags of several values


def _given_twice(arguments: Sequence[str]) -> str | None:
    """The first flag that stands there a second time, however it is written."""
    flags = [one.partition("=")[0].replace("_", "-") for one in arguments if one.startswith("--")]
    return next((flag for i, flag in enumerate(flags) if flag in flags[:i]), None)


def _interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error: an import that it ends may say something else."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


_PLAIN = {"±": "+-", "×": "x", "–": "-", "—": "-", "µ": "u", "…": "..."}


def _print_what_the_terminal_can() -> None:
    """Where a terminal cannot show a letter, print the nearest that it can."""

    def plainer(error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeEncodeError):
            raise error
        letters = error.object[error.start : error.end]
        return "".join(_PLAIN.get(letter, "?") for letter in letters), error.end

    codecs.register_error("cpdpo", plainer)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors != "cpdpo":
            stream.reconfigure(errors="cpdpo")


def _sentence(error: Exception) -> str:
    """What went wrong, for a person."""
    if files.is_full(error):
        where = getattr(error, "filename", None)  # the run directory
        if where is None:
            return "the disk is full; free some space, then give the same command again."
        return f"{where}: the disk is full. What was finished is safe; free some space, then: cpdpo resume {where}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    if isinstance(error, (ValueError, ArithmeticError, OSError, WorkerError)):
        return str(error)
    return f"{type(error).__name__}: {error} (this is a fault of cpdpo; --debug shows where)"


def _in_one_line(box: str) -> str:
    """The message in tyro's box, without the frame; of an unknown flag, the nearest one."""
    lines = [line.strip("│╭╮╰╯|+ \n") for line in box.splitlines()]
    parts = [" ".join(part.split()) for part in re.split(r"\n[─-]{3,}\n", "\n".join(lines[1:]))]
    told, *rest = [part for part in parts if part.strip("─- ")] or [" ".join(lines)]
    told = told.strip("─- ").rstrip(".")
    if flags := re.findall(r"Unrecognized options: ([^,\s]+)", told):
        near = re.findall(r"--[a-z][a-z-]*", rest[0]) if rest and "Perhaps" in rest[0] else []
        return f"{flags[0]} is not known" + (f"; did you mean {near[0]}?" if near else "")
    if missing := re.findall(r"Missing value for argument '([^']+)'", told):
        return f"{missing[0]} needs a value"
    return told
