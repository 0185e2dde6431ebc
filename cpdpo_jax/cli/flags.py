"""The flags of `cpdpo run` as the table of a TOML file."""

from __future__ import annotations

import re
from typing import Any

from cpdpo_jax.cli import arguments
from cpdpo_jax.common.axes import AXES
from cpdpo_jax.sweeps import config as configuration
from cpdpo_jax.sweeps import config_text


def table(args: arguments.Run) -> dict[str, Any]:
    """The values of the flags that were given, by their keys in the file."""
    values: dict[str, Any] = {}
    if args.learner:
        values["learners"] = list(args.learner)
    if args.env:
        values["environments"] = [config_text.parse_environment(text) for text in args.env]
    if args.episodes:
        values["episodes"] = [parse_integer("episodes", text) for text in args.episodes]
    if args.hparams:
        values["hparams"] = _hparams(args.hparams)
    if args.imports:
        values["imports"] = list(args.imports)
    if args.seeds:
        values["seeds"] = parse_seeds(args.seeds)
    return values | {name: _option(name, text) for name, text in vars(args.simulation).items() if text}


def _option(name: str, text: str) -> Any:
    """The value of an option; "0.05,0.1" is a list where a list is an axis."""
    if name in AXES and "," in text and not text.lstrip().startswith(("[", "{")):
        return [config_text.parse_value(part, f"--{name}") for part in text.split(",")]
    return config_text.parse_value(text, f"--{name}")


def _hparams(texts: tuple[str, ...]) -> list[Any]:
    """The presets among `texts` ("tuned" if there is none), each with the values NAME=VALUE that override it."""
    presets: list[str] = []
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        if not equals:
            presets.append(name)
            continue
        if name in values:
            raise ValueError(f"--hparams gives {name!r} twice; give all values at once: {name}=A,B.")
        values[name] = [config_text.parse_value(value, f"--hparams {name}") for value in rest.split(",")]
    return [{"preset": preset, **values} if values else preset for preset in presets or ["tuned"]]


def parse_integer(name: str, text: str) -> int:
    """The whole number in a text such as "1000", "10_000" or "1e5"."""
    try:
        return int(float(text)) if float(text).is_integer() else int(text)
    except (ValueError, OverflowError):
        shown = repr(text) if len(text) < 60 else f"{text[:20]!r}... ({len(text)} characters)"
        raise ValueError(f"{name} = {shown} is not a whole number; write 1000, 10_000 or 1e5.") from None


def parse_seeds(text: str) -> int | list[int]:
    """A number of seeds ("64"), or a list of seeds ("5,7,9" or "64-127")."""
    if not re.search(r",|\d\s*-", text):
        return parse_integer("seeds", text)
    seeds: list[int] = []
    for part in filter(None, text.replace(" ", "").split(",")):
        first, dash, last = part.partition("-")
        digits = first.isdigit() and (last.isdigit() or not dash)
        if digits and (max(len(first), len(last)) > 10 or int(last or first) - int(first) >= configuration.MAX_SIZE):
            raise ValueError(
                f"seeds = {part[:30]!r} is too large; give at most {configuration.MAX_SIZE:,}, below 2^32."
            )
        if not digits or (dash and int(last) < int(first)):
            raise ValueError(f"seeds = {text!r}: {part!r} is neither a seed nor a range; give 64, or 5,7,9, or 64-127.")
        seeds += range(int(first), int(last or first) + 1)
    return seeds
