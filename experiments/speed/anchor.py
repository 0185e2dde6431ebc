"""The speed anchor: a hand-written C++ program for the same work, compiled for a size and run on the same cores.

Its source takes the size as -DL -DS -DA -DM and its program the arguments SEEDS EPISODES THREADS; it prints one line of
JSON with us_per_episode_seed, episodes and seeds.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from experiments.speed.timing import Size

COMPILERS = ("g++", "clang++", "c++")
FLAGS = ("-w", "-O3", "-march=native", "-ffast-math", "-pthread")


def compiler() -> str:
    """The C++ compiler: $CXX, or the first installed one."""
    for name in (os.environ.get("CXX", ""), *COMPILERS):
        path = shutil.which(name) if name else None
        if path:
            return path
    raise ValueError(f"this needs a C++ compiler, and none of {', '.join(COMPILERS)} is installed; install one.")


def build(source: Path, size: Size, directory: str) -> str:
    """Compile the anchor for a size into a directory; returns the program's path."""
    program = Path(directory) / (f"{source.stem}_" + "_".join(map(str, size)))
    defined = (f"-D{name}={value}" for name, value in zip("LSAM", size, strict=True))
    command = [compiler(), *FLAGS, *defined, "-o", str(program), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        message = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[:200])
        raise ValueError(f"anchor = {str(source)!r} does not compile for the size {tuple(size)}: {message}")
    return str(program)


def run(program: str, seeds: int, threads: int, episodes: int) -> float:
    """Seconds of a run as measured by the program, without its start."""
    command = [program, str(seeds), str(episodes), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        measured = json.loads(done.stdout)
        return measured["us_per_episode_seed"] * 1e-6 * measured["episodes"] * measured["seeds"]
    except (ValueError, KeyError, TypeError):
        output = (done.stdout or done.stderr).strip()[:200]
        raise ValueError(
            f"the anchor printed {output!r} and not JSON with us_per_episode_seed, episodes and seeds; correct it."
        ) from None
