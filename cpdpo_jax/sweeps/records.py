"""The small JSON and TOML files of a run directory, each with a checksum that detects changes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from cpdpo_jax.common import files
from cpdpo_jax.common.files import DamagedError
from cpdpo_jax.common.former_names import STORED, renamed
from cpdpo_jax.sweeps import config as configuration
from cpdpo_jax.sweeps import config_text
from cpdpo_jax.sweeps.config import Config, block_key

FORMAT = 2
_LAST_LINE = "# sha256 "


def as_json(content: dict[str, Any]) -> str:
    """The JSON text of a table with its format and checksum."""
    content = {**content, "format": content.get("format", FORMAT)}
    content.pop("sha256", None)
    return json.dumps(content | {"sha256": _sum(content)}, indent=1)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write `as_json` to a file."""
    files.write(path, as_json(content))


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """The table in a file; DamagedError names the file and the remedy."""
    content = _parsed(path, remedy)
    stored = content.pop("sha256", None)
    if stored != _sum(content):
        reason = "it has no checksum" if stored is None else "it was changed after it was written"
        raise DamagedError(f"{path} is damaged: {reason}; {remedy}")
    written = content.get("format")
    if written != FORMAT:
        raise ValueError(f"{path} has format {written}, but cpdpo_jax reads format {FORMAT}; update the package.")
    return content


def read_blocks(path: Path, remedy: str) -> dict[str, dict[str, Any]]:
    """All blocks of a run by key; each key is the hash of its block."""
    blocks = read_json(path, remedy).get("blocks")
    if isinstance(blocks, dict):
        blocks = {key: renamed(block, STORED) for key, block in blocks.items()}
    if not isinstance(blocks, dict) or not blocks or any(block_key(block) != key for key, block in blocks.items()):
        reason = "it names no block" if blocks == {} else "the hash of a block differs from its key"
        raise DamagedError(f"{path} is damaged: {reason}; {remedy}")
    return blocks


def read_sessions(path: Path) -> list[dict[str, Any]]:
    """The sessions of a shard: times, versions and machines."""
    remedy = "remove it; no result depends on it"
    sessions = read_json(path, remedy).get("sessions")
    if not isinstance(sessions, list) or not all(isinstance(session, dict) for session in sessions):
        raise DamagedError(f"{path} is damaged: it lists no sessions; {remedy}")
    return sessions


def write_config(path: Path, config: Config) -> None:
    """Write the configuration as TOML with its checksum in a comment at the end."""
    text = config_text.to_toml(config.table())
    files.write(path, f"{text}{_LAST_LINE}{hashlib.sha256(text.encode()).hexdigest()}\n")


def read_config(path: Path, remedy: str) -> Config:
    """The configuration in a file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DamagedError(f"{path} is missing; {remedy}") from None
    except UnicodeDecodeError as error:
        raise DamagedError(f"{path} is damaged: it is not text in UTF-8; {remedy}") from error
    body, mark, stored = text.rpartition(_LAST_LINE)
    if not mark or stored.strip() != hashlib.sha256(body.encode()).hexdigest():
        raise DamagedError(f"{path} is damaged: it was changed after it was written; {remedy}")
    return configuration.build(config_text.read(path), str(path), warn=lambda text: None)


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
    """The checksum of a table."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
