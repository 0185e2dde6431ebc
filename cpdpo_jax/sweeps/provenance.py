"""The provenance of a result: versions, a hash of the numerical code, git revision, devices and time."""

from __future__ import annotations

import datetime
import functools
import importlib
import os
import subprocess
from importlib import metadata
from pathlib import Path

from cpdpo_jax.common.machine import cpu_type
from cpdpo_jax.sweeps.hashing import digest

PACKAGE = Path(__file__).parents[1]
NUMERICAL_PACKAGES = (
    "common",
    "kernels",
    "exact",
    "envs",
    "learners",
    "simulation",
)  # determine results


def now() -> str:
    """The current time in UTC, in ISO 8601."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """The versions that determine rounding: the package, a hash of its numerical code, and the compiler."""
    paths = [path for name in NUMERICAL_PACKAGES for path in (PACKAGE / name).rglob("*.py")]
    code = digest({path.relative_to(PACKAGE).as_posix(): path.read_bytes() for path in paths})
    libraries = {name: metadata.version(name) for name in ("jax", "jaxlib", "numpy", "highspy")}
    return {"cpdpo_jax": metadata.version("cpdpo_jax"), "code": code, **libraries}


_HARMLESS = ("--xla_force_host_platform_device_count", "--xla_dump")  # flags that do not change results
_VARIABLES = ("CPDPO_TARGET", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_OPT", "NUMBA_DISABLE_JIT")


def rounding() -> dict[str, str]:
    """The machine's properties that determine rounding: processor, devices, CPU kernels and compiler options."""
    import jax

    from cpdpo_jax.simulation import workers

    flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if not flag.startswith(_HARMLESS)]
    kinds = {f"{device.platform} {device.device_kind}" for device in workers.devices()}
    return {
        "cpu": cpu_type(),
        "devices": ", ".join(sorted(kinds)),
        "XLA_FLAGS": " ".join(sorted(flags)),
        "kernels": _kernels(),
        "matmul_precision": str(jax.config.jax_default_matmul_precision or ""),  # pyright: ignore[reportAttributeAccessIssue]
        **{name: os.environ.get(name, "") for name in _VARIABLES},
    }


def _kernels() -> str:
    """The compiler of the CPU kernels, with versions."""
    from cpdpo_jax.kernels.machines.numba import calls
    from cpdpo_jax.kernels.machines.target import only_paper_forms

    return "pure JAX" if only_paper_forms() or not calls.is_usable() else _numba()


@functools.cache
def _numba() -> str:
    """The versions of numba and llvmlite if both can be imported; an installation may be broken."""
    try:
        numba, llvmlite = (importlib.import_module(name) for name in ("numba", "llvmlite"))
    except Exception:  # of any type: the kernels are then not in use
        return "pure JAX"
    return f"numba {numba.__version__}, llvmlite {llvmlite.__version__}"


def git_revision() -> str | None:
    """The git revision of the package's checkout, with '+' for uncommitted changes; None outside a checkout."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(PACKAGE), *arguments], capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) != PACKAGE.parent:
            return None
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def devices() -> list[str]:
    """The devices of jax and the number of cores."""
    from cpdpo_jax.simulation import workers

    return [*(f"{device.platform}: {device.device_kind}" for device in workers.devices()), f"{os.cpu_count()} cores"]
