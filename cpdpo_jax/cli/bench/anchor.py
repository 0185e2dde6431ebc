"""The speed anchor: a hand-written program for the same work, compiled for the sizes and run on the same cores.

Its source takes the sizes as -DL -DS -DA -DM and its program SEEDS EPISODES THREADS; it prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from cpdpo_jax import learners
from cpdpo_jax.cli.bench.simulator import Size

COMPILERS = ("g++", "clang++", "c++")
FLAGS = ("-w", "-O3", "-march=native", "-ffast-math", "-pthread")


def compiler() -> str:
    """The C++ compiler: $CXX, or the first that is there."""
    for name in (os.environ.get("CXX", ""), *COMPILERS):
        found = shutil.which(name) if name else None
        if found:
            return found
    raise ValueError(
        f"--anchor needs a C++ compiler, and none of {', '.join(COMPILERS)} is here; install one or leave --anchor out."
    )


def sources(asked: Sequence[str]) -> dict[str, Path]:
    """The source of each learner's anchor, from LEARNER=FILE or FILE (CPD-PO's); complains before work is done."""
    found = {}
    for text in asked:
        learner, _, name = text.rpartition("=")
        source = Path(name)
        if not source.is_file():
            raise ValueError(f"anchor = {name!r} is not a file; give its C++ source, or leave --anchor out.")
        found[learners.get(learner or "cpdpo").name] = source
    if found:
        compiler()
    return found


def build(source: Path, size: Size, directory: str) -> str:
    """Compile the anchor for a size into a directory; the program's path."""
    program = Path(directory) / (f"{source.stem}_" + "_".join(map(str, size)))
    defined = (f"-D{name}={value}" for name, value in zip("LSAM", size, strict=True))
    words = [compiler(), *FLAGS, *defined, "-o", str(program), str(source)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        said = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[:200])
        raise ValueError(f"anchor = {str(source)!r} does not compile for the size {size}: {said}")
    return str(program)


def run(program: str, seeds: int, threads: int, episodes: int) -> float:
    """Seconds of a run, as the program measures it: its own start is not counted."""
    words = [program, str(seeds), str(episodes), str(threads)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    try:
        told = json.loads(done.stdout)
        return told["us_per_episode_seed"] * 1e-6 * told["episodes"] * told["seeds"]
    except (ValueError, KeyError, TypeError):
        said = (done.stdout or done.stderr).strip()[:200]
        raise ValueError(
            f"the anchor said {said!r} and not JSON with us_per_episode_seed, episodes and seeds; correct its source."
        ) from None
