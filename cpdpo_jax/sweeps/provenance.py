"""Where a result comes from: versions, a hash of the numerical code, git revision, devices, the time."""

from __future__ import annotations

import datetime
import hashlib
import os
import subprocess
from importlib import metadata
from pathlib import Path

HOME = Path(__file__).parents[1]
COMPUTING = ("common", "kernels", "exact", "envs", "learners", "simulation")  # rooms that decide what a result is


def now() -> str:
    """The time, for people and programs."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """What decides how numbers are rounded: the package, a hash of its numerical code, and the compiler."""
    code = hashlib.sha256()
    for path in sorted(path for room in COMPUTING for path in (HOME / room).rglob("*.py")):
        code.update(path.read_bytes())
    here = {name: metadata.version(name) for name in ("jax", "jaxlib", "numpy", "highspy")}
    return {"cpdpo_jax": metadata.version("cpdpo_jax"), "code": code.hexdigest()[:12], **here}


def git_revision() -> str | None:
    """The revision of the package's own checkout, with '+' if files differ from it; None outside one."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(HOME), *arguments], capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) != HOME.parent:
            return None
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", "cpdpo_jax") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def devices() -> list[str]:
    """What jax computes on, and how many cores there are."""
    import jax

    return [*(f"{one.platform}: {one.device_kind}" for one in jax.local_devices()), f"{os.cpu_count()} cores"]
