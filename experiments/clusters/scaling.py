"""Blocks per minute by threads and by 1 and 2 local workers, alternating in one run: the overhead of dask per block.

--blocks 4 --episodes 1300000 --rounds 1      blocks of a minute or more: a quarter of an hour on two cores
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import cpdpo_jax as cp
from cpdpo_jax.sweeps.dask.clusters import connect
from cpdpo_jax.sweeps.engine_spec import EngineSpec
from experiments.clusters.compare import tell

TABLE = {
    "learners": ["cpdpo"],
    "seeds": 32,
}
PLACES = {1: ("threads, 1 core", "1 worker"), 2: ("threads, 2 cores", "2 workers")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--episodes", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--cores", type=int, nargs="+", choices=list(PLACES), default=list(PLACES))
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="cpdpo-scaling-"))
    environment = f"random:layers=5,states=5,actions=3,constraints=2,instances={args.blocks}"
    table = TABLE | {"environments": [environment], "episodes": args.episodes}
    cores = sorted(os.sched_getaffinity(0))
    spent: dict[str, list[float]] = {place: [] for count in args.cores for place in PLACES[count]}
    with (
        connect(EngineSpec("local:1"), {}, folder, print, print) as single,
        connect(EngineSpec("local:2"), {}, folder, print, print) as two,
    ):
        on = {"1 worker": single.client, "2 workers": two.client}
        for client in on.values():  # compiled before it is measured
            cp.run(table | {"episodes": 40}, out=folder / f"warm{id(client)}", on=client, progress=False)
        cp.run(table | {"episodes": 40}, out=folder / "warm", progress=False)
        for turn in range(args.rounds):
            for place in spent:
                out = folder / f"{place} {turn}"
                os.sched_setaffinity(0, cores[:1] if place == "threads, 1 core" else cores)
                started = time.perf_counter()
                cp.run(table, out=out, on=on.get(place, ""), progress=False)
                spent[place].append(time.perf_counter() - started)
                print(f"{place}: {60 * args.blocks / spent[place][-1]:.2f} blocks per minute", flush=True)
    print(f"{len(cores)} cores; {args.blocks} blocks of {args.episodes:,} episodes, 32 seeds")
    print("| where | blocks per minute, each round | best |\n|---|---|---|")
    for place, times in spent.items():
        rates = [60 * args.blocks / seconds for seconds in times]
        print(f"| {place} | {', '.join(f'{rate:.2f}' for rate in rates)} | {max(rates):.2f} |")
    for at_once in args.cores:
        few, place = PLACES[at_once]
        alone, there = (min(spent[name]) * at_once / args.blocks for name in (few, place))
        print(
            f"{place}: {there - alone:+.2f} s a block over {alone:.1f} s by {few}: {100 * (there / alone - 1):+.1f} %"
        )
    first, *others = spent
    good = all(tell(place, folder / f"{place} 0", folder / f"{first} 0") for place in others)
    shutil.rmtree(folder)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
