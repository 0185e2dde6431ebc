"""The small files of a run directory, in JSON and TOML, each with a checksum of its own: a change is seen and named."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from cpdpo_jax.common import files
from cpdpo_jax.common.files import DamagedError
from cpdpo_jax.sweeps import config as configuration
from cpdpo_jax.sweeps.config import Config, digest

FORMAT = 2  # since 2 every file has a checksum
_LAST_LINE = "# sha256 "


def as_json(content: dict[str, Any]) -> str:
    """A table with its format and checksum."""
    content = {**content, "format": content.get("format", FORMAT)}
    content.pop("sha256", None)
    return json.dumps(content | {"sha256": _sum(content)}, indent=1)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """The same in a file."""
    files.write(path, as_json(content))


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """What was written; DamagedError names the file and the remedy. Format 1 had no checksum."""
    content = _parsed(path, remedy)
    stored = content.pop("sha256", None)
    written = content.get("format", 1)
    if stored is not None and stored != _sum(content):
        raise DamagedError(f"{path} is damaged: it was changed since it was written; {remedy}")
    if not isinstance(written, int) or written > FORMAT:
        raise ValueError(f"{path} is of format {written}, this cpdpo_jax reads up to {FORMAT}; update the package.")
    if stored is None and written > 1:
        raise DamagedError(f"{path} is damaged: its checksum is lost; {remedy}")
    return content


def write_blocks(path: Path, blocks: dict[str, dict[str, Any]]) -> None:
    """All blocks of a run by key."""
    write_json(path, {"blocks": blocks})


def read_blocks(path: Path, remedy: str) -> dict[str, dict[str, Any]]:
    """All blocks of a run by key; each key is the hash of its block."""
    content = read_json(path, remedy)
    blocks = content["blocks"] if "format" in content else content
    if not isinstance(blocks, dict) or not blocks or any(digest(block) != key for key, block in blocks.items()):
        what = "it names no block" if blocks == {} else "a block is not what its key says"
        raise DamagedError(f"{path} is damaged: {what}; {remedy}")
    return blocks


def read_sessions(path: Path) -> list[dict[str, Any]]:
    """When a shard was run, and on what."""
    remedy = "remove it; it is for people"
    sessions = read_json(path, remedy).get("sessions")
    if not isinstance(sessions, list) or not all(isinstance(one, dict) for one in sessions):
        raise DamagedError(f"{path} is damaged: it lists no sessions; {remedy}")
    return sessions


def write_config(path: Path, config: Config) -> None:
    """The configuration as TOML, its checksum in a comment at the end."""
    text = configuration.write(config)
    files.write(path, f"{text}{_LAST_LINE}{hashlib.sha256(text.encode()).hexdigest()}\n")


def read_config(path: Path, remedy: str, checked: bool) -> Config:
    """The configuration; `checked`: it must have its checksum."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DamagedError(f"{path} is missing; {remedy}") from None
    except UnicodeDecodeError as error:
        raise DamagedError(f"{path} is damaged: it is not text in UTF-8; {remedy}") from error
    body, mark, stored = text.rpartition(_LAST_LINE)
    if checked and (not mark or stored.strip() != hashlib.sha256(body.encode()).hexdigest()):
        raise DamagedError(f"{path} is damaged: it was changed since it was written; {remedy}")
    return configuration.build(configuration.read(path), str(path))


def _parsed(path: Path, remedy: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DamagedError(f"{path} is missing; {remedy}") from None
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path} is damaged: it is not JSON ({error}); {remedy}") from error
    if not isinstance(content, dict):
        raise DamagedError(f"{path} is damaged: it holds no table; {remedy}")
    return content


def _sum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
