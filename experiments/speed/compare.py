"""How fast is it? CPD-PO beside the hand-written SIMD C++ anchor, same sizes, same cores, same run; and its memory.

    python experiments/speed/compare.py --anchor ../shared/anchors/cpdpo_simd.cpp

Warm: compile time is reported apart. Rounds alternate between the two, the best of each counts. Without --anchor that
row is left out. Memory: peak resident size of a fresh process at two T.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LAYERS, STATES, ACTIONS, CONSTRAINTS = 5, 5, 3, 2


def cmdp():
    import cpdpo_jax as cp

    return cp.envs.make(
        "random", layers=LAYERS, states=STATES, actions=ACTIONS, constraints=CONSTRAINTS, key=1, rho=0.5
    )


def build_anchor(source: Path, directory: str) -> Path:
    binary = Path(directory) / "anchor"
    sizes = {"L": LAYERS, "S": STATES, "A": ACTIONS, "M": CONSTRAINTS}
    flags = ["-O3", "-march=native", "-ffast-math", "-pthread", *(f"-D{name}={n}" for name, n in sizes.items())]
    subprocess.run(["g++", "-w", *flags, "-o", str(binary), str(source)], check=True)
    return binary


def memory_probe(episodes: int, seeds: int) -> None:
    import cpdpo_jax as cp

    cp.simulate("cpdpo", cmdp(), episodes=episodes, seeds=seeds, progress=False, checkpoints=50)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--anchor", type=Path)
    parser.add_argument("--seeds", type=int, default=128)
    parser.add_argument("--episodes", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", type=int, nargs="*", default=[10_000, 1_000_000], help="T of the memory probes")
    parser.add_argument("--probe", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.probe:
        memory_probe(chosen.probe, chosen.seeds)
        return
    import cpdpo_jax as cp

    instance = cmdp()
    start = time.perf_counter()
    cp.simulate("cpdpo", instance, episodes=1, seeds=chosen.seeds, progress=False)
    first = time.perf_counter() - start
    start = time.perf_counter()
    cp.simulate("cpdpo", instance, episodes=1, seeds=chosen.seeds, progress=False)
    print(f"compilation (first call minus a warm one): {first - (time.perf_counter() - start):.1f} s")
    ours, theirs = [], []
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as directory:
        binary = build_anchor(chosen.anchor, directory) if chosen.anchor else None
        for _ in range(chosen.rounds):
            result = cp.simulate("cpdpo", instance, episodes=chosen.episodes, seeds=chosen.seeds, progress=False)
            ours.append(result.data.attrs["seconds"] / chosen.episodes / chosen.seeds * 1e6)
            if binary:
                words = [str(binary), str(chosen.seeds), str(chosen.episodes), str(cores)]
                answer = subprocess.run(words, check=True, capture_output=True, text=True).stdout
                theirs.append(json.loads(answer)["us_per_episode_seed"])
    print(f"microseconds per episode and seed, {chosen.seeds} seeds, {cores} cores, rounds: ours {ours}")
    if theirs:
        print(f"anchor {theirs}\nratio of the best: {min(ours) / min(theirs):.2f}")
    for episodes in chosen.memory:
        words = [sys.executable, __file__, "--probe", str(episodes), "--seeds", str(chosen.seeds)]
        answer = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        print(f"peak memory at T = {episodes:,}: {float(answer):.0f} MiB")


if __name__ == "__main__":
    main()
