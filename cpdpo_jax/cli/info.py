"""`cpdpo info`: versions, devices, the kernels in use, caches and a quick benchmark."""

from __future__ import annotations

import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from cpdpo_jax import envs, kernels
from cpdpo_jax.cli import arguments
from cpdpo_jax.common.machine import cores, cpu_type
from cpdpo_jax.kernels.machines import report
from cpdpo_jax.simulation.simulate import simulate
from cpdpo_jax.simulation.workers import devices, use_compilation_cache

PACKAGES = ("cpdpo_jax", "jax", "jaxlib", "numpy", "numba", "llvmlite")
KERNELS = Path(kernels.__file__ or "").parent
SEEDS, WARM = 64, 2000
REFERENCE = {"million_episodes_per_second": 4.3, "on": "512 seeds on two quiet cores of an AMD EPYC, docs/speed.md"}


def run(args: arguments.Info) -> int:
    """Print everything; the benchmark takes a few seconds."""
    facts = gather()
    print(json.dumps(facts) if args.json else text(facts))
    return 0


def gather(seconds: float = 1.0) -> dict[str, Any]:
    """The output of `cpdpo info --json`; the benchmark takes about `seconds`."""
    jax_devices = devices()  # raises for an unusable device before anything is compiled
    use_compilation_cache()
    speed = million_episodes_per_second(seconds)
    return {
        "versions": {"python": platform.python_version(), **versions()},
        "platform": platform.platform(),
        "processor": cpu_type(),
        "cores": cores(),
        "devices": [f"{device.platform}: {device.device_kind}" for device in jax_devices],
        "kernels": report.lines(),
        "caches": {"jax": contents(jax_cache(), "*"), "numba": contents(numba_cache(), "*.nb[ic]")},
        "speed": {"million_episodes_per_second": speed, "seeds": SEEDS, "reference": REFERENCE},
    }


def versions() -> dict[str, str | None]:
    """The installed versions of the packages that determine the compiled programs; None: not installed."""
    installed = {package.name: package.version for package in metadata.distributions()}
    return {name: installed.get(name) for name in PACKAGES}


def jax_cache() -> Path | None:
    """The directory of jax's compilation cache; None if it is off."""
    config: Any = jax.config
    directory = config.jax_compilation_cache_dir if config.jax_enable_compilation_cache else None
    return Path(directory) if directory else None


def numba_cache() -> Path:
    """The directory of numba's cache: next to the source if it is writable."""
    if directory := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(directory)
    if os.access(KERNELS, os.W_OK):
        return KERNELS
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "numba"


def contents(directory: Path | None, pattern: str) -> dict[str, Any]:
    """A cache's directory, number of files and size."""
    sizes = [path.stat().st_size for path in directory.rglob(pattern) if path.is_file()] if directory else []
    return {"directory": str(directory) if directory else None, "files": len(sizes), "megabytes": sum(sizes) / 1e6}


def million_episodes_per_second(seconds: float) -> float:
    """Throughput of CPD-PO summed over seeds, exact metrics included, compiled before it is timed."""
    cmdp = envs.make("random", layers=5, states=5, actions=3, constraints=2, rho=0.5, key=1)

    def timed(episodes: int) -> float:
        result = simulate("cpdpo", cmdp, episodes=episodes, seeds=SEEDS, hparams="theory", progress=False)
        return float(result.data.attrs["seconds"])

    timed(1)
    episodes = max(WARM, round(WARM * seconds / timed(WARM)))
    return episodes * SEEDS / timed(episodes) / 1e6


def text(facts: dict[str, Any]) -> str:
    """The facts as text."""
    lines = ["versions: " + ", ".join(f"{name} {version or 'missing'}" for name, version in facts["versions"].items())]
    lines.append(f"platform: {facts['platform']}")
    lines.append(f"devices: {', '.join(facts['devices'])}; {facts['processor']}, {facts['cores']} cores")
    lines += ["kernels:", *(f"  {line}" for line in facts["kernels"]), "caches:"]
    for name, cache in facts["caches"].items():
        size = f"{cache['directory']} ({cache['files']} files, {cache['megabytes']:.1f} MB)"
        lines.append(f"  {name}: {size if cache['directory'] else 'off'}")
    speed = facts["speed"]
    lines.append(
        f"speed: {speed['million_episodes_per_second']:.2f} million episodes per second of CPD-PO at 5 x 5 x 3 with "
        f"2 constraints, {speed['seeds']} seeds ({REFERENCE['million_episodes_per_second']} with {REFERENCE['on']})"
    )
    return "\n".join(lines)
