"""Configurations as text: TOML files, environments on the command line, and labels of environments."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MAX_DEPTH = 20  # nesting of a value


def read(path: Path) -> dict[str, Any]:
    """The table in a TOML file."""
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no file '{path}'; give a TOML file, or the flags --learner, --env, --episodes and --seeds."
        )
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file in UTF-8.") from error
    try:
        return _parse(text)
    except _UnreadableError as error:
        key = re.search(r"^\s*([^=\n]+?)\s*=[^=\n]*?(\d[\d_]{4000}|[\[{]{100})", text, re.MULTILINE)
        raise ValueError(f"{path}: {key[1] if key else 'a value'} {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not TOML: {error}.") from error


class _UnreadableError(ValueError):
    """A TOML value that Python cannot read; the message is the end of a sentence."""


def _parse(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise _UnreadableError(f"nests lists or tables too deeply; give at most {MAX_DEPTH} levels.") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:
        raise _UnreadableError("has thousands of digits; give a whole number of at most 64 bits.") from None


def parse_environment(text: str) -> dict[str, Any]:
    """The table of a text such as 'random:layers=4,rho=0.5'; values that are not TOML are texts."""
    name, _, rest = text.partition(":")
    table: dict[str, Any] = {"name": name}
    for part in re.split(r",(?![^\[]*\])", rest) if rest else []:
        parameter, equals, value = part.partition("=")
        if not equals or not parameter.strip():
            raise ValueError(f"environment {text!r}: {part!r} has no value; write PARAMETER=VALUE.")
        if parameter.strip() in table:
            raise ValueError(f"environment {text!r} gives {parameter.strip()!r} twice; give it once.")
        table[parameter.strip()] = parse_value(value, f"environment {name!r}: {parameter.strip()}")
    return table


def parse_value(text: str, name: str = "a value") -> Any:
    """The TOML value of a text, or the text itself."""
    try:
        return _parse(f"x = {text}")["x"]
    except _UnreadableError as error:
        raise ValueError(f"{name} {error}") from error
    except tomllib.TOMLDecodeError:
        return text.strip()


def environment_label(table: Mapping[str, Any]) -> str:
    """The label of an environment: the inverse of `parse_environment`."""
    parts = ",".join(f"{name}={_toml(value).strip(chr(34))}" for name, value in table.items() if name != "name")
    return f"{table['name']}:{parts}" if parts else str(table["name"])


def to_toml(table: Mapping[str, Any]) -> str:
    """The table of a configuration as TOML, with every default, so that the file repeats the run if they change."""
    values = dict(table)
    environments = values.pop("environments")
    lines = ["# Written by cpdpo; run it again with: cpdpo run FILE --out NEW_DIRECTORY"]
    lines += [f"{name} = {_toml(value)}" for name, value in values.items()]
    for table in environments:
        lines += ["", "[[environments]]", *(f"{_key(name)} = {_toml(value)}" for name, value in table.items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(name)} = {_toml(entry)}" for name, entry in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, (bool, str)):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, (int, float)):
        return repr(float(value) if isinstance(value, float) else value)  # the repr of a NumPy scalar names its type
    raise ValueError(f"{value!r} cannot be written as TOML; give a number, a text, a list or a table.")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)
