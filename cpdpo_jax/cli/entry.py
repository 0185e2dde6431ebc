"""The entry point of the command line: parse the arguments, run the command, and report errors in one line.

Exit codes: 0 success, 1 failure during the run (full disk, non-finite values, an error in a user's code), 2 invalid
arguments (nothing was written), 130 interrupted by Ctrl-C. Importing this module does not import jax.
"""

from __future__ import annotations

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
from cpdpo_jax.common.former_names import FLAGS
from cpdpo_jax.common.text import did_you_mean


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; errors are one line on stderr."""
    arguments = sys.argv[1:] if arguments is None else arguments
    arguments = {"help": ["--help"], "version": ["--version"], "": ["--help"]}.get(" ".join(arguments), arguments)
    if list(arguments) == ["--version"]:
        print(f"cpdpo {metadata.version('cpdpo_jax')}")
        return 0
    _replace_unprintable()
    if arguments[0] == "bench":  # until the next release
        print(
            "cpdpo: `cpdpo bench` is now `python -m experiments.speed`, run in a checkout of the repository; "
            "`cpdpo info` prints a quick benchmark.",
            file=sys.stderr,
        )
        return 2
    if not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        hint = did_you_mean(arguments[0], COMMANDS, most=1) or f"choose one of {', '.join(COMMANDS)}."
        print(f"cpdpo: there is no command {arguments[0]!r}; {hint}", file=sys.stderr)
        return 2
    arguments = _with_new_names(arguments)
    if flag := _repeated_flag(arguments):
        remedy = f"give all its values at once: {flag} A B" if flag in _MULTI_VALUED else "give it once"
        print(f"cpdpo: {flag} is given twice; {remedy}.", file=sys.stderr)
        return 2
    usage_error = io.StringIO()
    description = (
        "Batched simulation of online learning in constrained MDPs: CPD-PO and its rivals. Start with: cpdpo demo. "
        "cpdpo --version prints the version."
    )
    try:
        with contextlib.redirect_stderr(usage_error):
            args = tyro.cli(
                OmitArgPrefixes[FlagCreatePairsOff[Command]],  # pyright: ignore[reportArgumentType]
                args=arguments,
                prog="cpdpo",
                description=description,
            )
    except SystemExit as end:
        if end.code:
            command = f" {arguments[0]}" if arguments[0] in COMMANDS else ""
            print(f"cpdpo: {_unboxed(usage_error.getvalue())}; see cpdpo{command} --help", file=sys.stderr)
        return int(end.code or 0)
    try:
        from cpdpo_jax.cli.commands import run

        return run(args)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `cpdpo list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        from cpdpo_jax.sweeps import user_errors

        if _interrupted(error):
            return 130
        if args.debug:
            raise
        if (place := user_errors.describe(error)) is not None:
            print(f"cpdpo: {place} (an error in your code; --debug shows the stack trace)", file=sys.stderr)
            return 1
        invalid = isinstance(error, (ValueError, OSError)) and not files.is_disk_full(error)
        print(f"cpdpo: {_sentence(error)}", file=sys.stderr)
        return 2 if invalid else 1


# flags that take several values
_MULTI_VALUED = ("--learner", "--env", "--episodes", "--hparams", "--metric")


def _with_new_names(arguments: Sequence[str]) -> list[str]:
    """The arguments with the former flags --setting and --set as one --hparams; prints a deprecation to stderr."""
    if not any(argument.partition("=")[0] in FLAGS for argument in arguments):
        return list(arguments)
    kept: list[str] = []
    hparams: list[str] = []
    target = kept
    for argument in arguments:
        flag, equals, value = argument.partition("=")
        if flag in FLAGS:
            print(f"cpdpo: {flag} is deprecated and will be removed; use {FLAGS[flag]}.", file=sys.stderr)
        if flag in (*FLAGS, "--hparams"):
            target = hparams
            target += [value] if equals else []
            continue
        if argument.startswith("--"):
            target = kept
        target.append(argument)
    return [*kept, "--hparams", *hparams]


def _repeated_flag(arguments: Sequence[str]) -> str | None:
    """The first repeated flag; dashes and underscores are equivalent."""
    flags = [text.partition("=")[0].replace("_", "-") for text in arguments if text.startswith("--")]
    return next((flag for i, flag in enumerate(flags) if flag in flags[:i]), None)


def _interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C caused an error: an interrupted import may raise a different one."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def _replace_unprintable() -> None:
    """Make stdout and stderr print "?" for characters that they cannot encode."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _sentence(error: Exception) -> str:
    """The error as a sentence for the user."""
    if files.is_disk_full(error):
        where = getattr(error, "filename", None)  # the run directory
        if where is None:
            return "the disk is full; free some space, then repeat the command."
        return f"{where}: the disk is full. Finished blocks are safe; free some space, then run: cpdpo resume {where}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    if isinstance(error, (ValueError, ArithmeticError, OSError, WorkerError)):
        return str(error)
    return f"{type(error).__name__}: {error} (an internal error; --debug shows the stack trace)"


def _unboxed(box: str) -> str:
    """The message of tyro's box in one line; for an unknown flag, also the nearest known one."""
    lines = [line.strip("│╭╮╰╯|+ \n") for line in box.splitlines()]
    parts = [" ".join(part.split()) for part in re.split(r"\n[─-]{3,}\n", "\n".join(lines[1:]))]
    message, *rest = [part for part in parts if part.strip("─- ")] or [" ".join(lines)]
    message = message.strip("─- ").rstrip(".")
    if flags := re.findall(r"Unrecognized options: ([^,\s]+)", message):
        near = re.findall(r"--[a-z][a-z-]*", rest[0]) if rest and "Perhaps" in rest[0] else []
        return f"{flags[0]} is not known" + (f"; did you mean {near[0]}?" if near else "")
    if missing := re.findall(r"Missing value for argument '([^']+)'", message):
        return f"{missing[0]} needs a value"
    return message
