"""Where a result comes from: versions, a hash of the numerical code, git revision, devices, the time."""

from __future__ import annotations

import datetime
import hashlib
import os
import subprocess
from importlib import metadata
from pathlib import Path

import cpdpo_jax

# files that say how results are asked for, stored and shown, not what they are
NOT_NUMERIC = (
    "__main__.py",
    "atomic.py",
    "collect.py",
    "cli.py",
    "commands.py",
    "config.py",
    "metrics.py",
    "plots.py",
    "provenance.py",
    "report.py",
    "report_data.py",
    "runner.py",
    "store.py",
    "tables.py",
)


def now() -> str:
    """The time, for people and programs."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """What decides how numbers are rounded: the package, a hash of its numerical code, and the compiler."""
    home = Path(__file__).parent
    code = hashlib.sha256()
    for path in sorted(home.rglob("*.py")):
        if path.name not in NOT_NUMERIC and path.parent.name != "bench":
            code.update(path.read_bytes())
    here = {name: metadata.version(name) for name in ("jax", "jaxlib", "numpy", "highspy")}
    return {"cpdpo_jax": cpdpo_jax.__version__, "code": code.hexdigest()[:12], **here}


def git_revision() -> str | None:
    """The revision of the package's own checkout, with '+' if files differ from it; None outside one."""
    home = Path(__file__).parent

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(home), *arguments], capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) != home.parent:
            return None
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", "cpdpo_jax") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def devices() -> list[str]:
    """What jax computes on, and how many cores there are."""
    import jax

    return [*(f"{one.platform}: {one.device_kind}" for one in jax.local_devices()), f"{os.cpu_count()} cores"]
