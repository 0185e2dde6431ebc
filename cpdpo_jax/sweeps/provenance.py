"""Where a result comes from: versions, a hash of the numerical code, git revision, devices, the time."""

from __future__ import annotations

import datetime
import hashlib
import os
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from cpdpo_jax.common.machine import cpu_type

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


_HARMLESS = ("--xla_force_host_platform_device_count", "--xla_dump")  # flags that change no bit


def rounding() -> dict[str, str]:
    """What else decides how numbers are rounded: the processor, what jax computes on, and the compiler's flags."""
    flags = [one for one in os.environ.get("XLA_FLAGS", "").split() if not one.startswith(_HARMLESS)]
    kinds = {f"{one.platform} {one.device_kind}" for one in _devices()}
    return {
        "cpu": cpu_type(),
        "devices": ", ".join(sorted(kinds)),
        "XLA_FLAGS": " ".join(sorted(flags)),
        "CPDPO_CPU_ACCELERATION": os.environ.get("CPDPO_CPU_ACCELERATION", ""),
        **{name: os.environ[name] for name in ("CPDPO_TARGET",) if os.environ.get(name)},
    }


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
    return [*(f"{one.platform}: {one.device_kind}" for one in _devices()), f"{os.cpu_count()} cores"]


def _devices() -> list[Any]:
    """What jax computes on; ValueError if it is told to use what is not there."""
    import jax

    try:
        return jax.local_devices()
    except (RuntimeError, AssertionError, AttributeError) as error:  # the last: jax's assertion under `python -OO`
        asked = os.environ.get("JAX_PLATFORMS", "")
        raise ValueError(
            f"JAX_PLATFORMS = {asked!r}: jax finds no such device here ({' '.join(str(error).split())[:200]}); set it "
            "to cpu, or unset it."
        ) from error
