"""The flags of `cpdpo run` under the names that a TOML file has for them."""

from __future__ import annotations

import re
from typing import Any

from cpdpo_jax.cli import arguments
from cpdpo_jax.sweeps import config as configuration


def table(asked: arguments.Run) -> dict[str, Any]:
    """What was given by flags, under the names of the file."""
    found: dict[str, Any] = {}
    if asked.learner:
        found["learners"] = list(asked.learner)
    if asked.env:
        found["environments"] = [configuration.parse_environment(one) for one in asked.env]
    if asked.episodes:
        found["episodes"] = [whole("episodes", one) for one in asked.episodes]
    if asked.setting or asked.set:
        found["settings"] = _settings(asked)
    if asked.imports:
        found["imports"] = list(asked.imports)
    if asked.seeds:
        found["seeds"] = seeds(asked.seeds)
    given = vars(asked.simulation).items()
    return found | {name: configuration.parse_value(text) for name, text in given if text}


def _settings(asked: arguments.Run) -> list[Any]:
    values: dict[str, Any] = {}
    for one in asked.set:
        name, equals, rest = one.partition("=")
        if not equals:
            raise ValueError(f"--set {one!r} is not NAME=VALUE.")
        if name in values:
            raise ValueError(f"--set gives {name!r} twice; give its values together: {name}=A,B.")
        values[name] = [configuration.parse_value(value) for value in rest.split(",")]
    presets = asked.setting or ("tuned",)
    return [{"preset": preset, **values} if values else preset for preset in presets]


def whole(name: str, text: str) -> int:
    """A whole number as people write it."""
    try:
        return int(float(text)) if float(text).is_integer() else int(text)
    except (ValueError, OverflowError):
        raise ValueError(f"{name} = {text!r} is not a whole number; write 1000, 10_000 or 1e5.") from None


def seeds(text: str) -> int | list[int]:
    """How many ("64"), or which: "5,7,9", or "64-127"."""
    if not re.search(r",|\d\s*-", text):
        return whole("seeds", text)
    chosen: list[int] = []
    for part in filter(None, text.replace(" ", "").split(",")):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or (dash and int(last) < int(first)):
            raise ValueError(f"seeds = {text!r}: {part!r} is no seed and no range; give 64, or 5,7,9, or 64-127.")
        chosen += range(int(first), int(last or first) + 1)
    return chosen
