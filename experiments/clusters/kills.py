"""One run of 24 blocks on two local workers with 20 kills (`kill -9`) of a worker.

The moments are drawn as shares of the work, not of time, so that the number of kills does not depend on the speed of
the machine, and the run can finish.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import cpdpo_jax as cp
from cpdpo_jax.sweeps import snapshots
from cpdpo_jax.sweeps.dask.clusters import connect
from cpdpo_jax.sweeps.engine_spec import EngineSpec
from cpdpo_jax.sweeps.store import Store
from experiments.clusters.compare import tell

TABLE = {
    "learners": ["uniform", "podb", "cpdpo"],
    "environments": ["random:layers=2,states=2,actions=2,constraints=1,instances=8"],
    "seeds": 32,
}
LAST = 0.97  # share of the work at the last kill, which must come before the last block


class Killer(threading.Thread):
    """Kills a worker whenever the run reaches the next share of its work."""

    def __init__(self, client: Any, store: Store, kills: int, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self.client, self.store, self.chance = client, store, chance
        self.shares = sorted(chance.uniform(0.01, LAST) for _ in range(kills))
        self.killed: list[tuple[int, int]] = []  # blocks finished and started at each kill
        self.over = threading.Event()

    def run(self) -> None:
        for share in self.shares:
            while self._done() < share:
                if self.over.wait(0.1):
                    return
            time.sleep(self.chance.uniform(0, 1))
            while not self._kill():
                if self.over.wait(0.1):
                    return

    def _done(self) -> float:
        """The stored share of the work."""
        if not self.store.exists:
            return 0.0
        blocks = self.store.blocks
        done = [
            block["episodes"] if self.store.is_done(key) else snapshots.episodes_done(self.store, key)
            for key, block in blocks.items()
        ]
        return sum(done) / sum(block["episodes"] for block in blocks.values())

    def _kill(self) -> bool:
        """Kill a worker; False if there is none at the moment."""
        try:
            os.kill(self.chance.choice(list(self.client.run(os.getpid, on_error="ignore").values())), signal.SIGKILL)
        except (IndexError, TypeError, ProcessLookupError, OSError):
            return False
        begun = len(list(self.store.path.glob("checkpoints/*.npz")))
        self.killed.append((sum(map(self.store.is_done, self.store.blocks)), begun))
        print(f"kill {len(self.killed)}: {self.killed[-1][0]} blocks finished, {begun} begun", flush=True)
        return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--episodes", type=int, default=400_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    folder = args.out or Path(tempfile.mkdtemp(prefix="cpdpo-kills-"))
    table = TABLE | {"episodes": args.episodes}
    started = time.perf_counter()
    cp.run(table, out=folder / "threads", progress=False)
    print(f"by threads: {time.perf_counter() - started:.0f} s", flush=True)
    with connect(EngineSpec("local:2"), {}, folder, print, print) as cluster:
        killer = Killer(cluster.client, Store(folder / "dask"), args.kills, random.Random(args.seed))
        killer.start()
        started = time.perf_counter()
        try:
            cp.run(table, out=folder / "dask", on=cluster.client, every=0.3, progress=False)
        finally:
            killer.over.set()
        seconds = time.perf_counter() - started
        killer.join(60)
    print(f"{len(killer.killed)} workers killed in a run of {seconds:.0f} s")
    good = tell("after the kills, against threads", folder / "dask", folder / "threads")
    if args.out is None:
        shutil.rmtree(folder)
    return 0 if good and len(killer.killed) == args.kills else 1


if __name__ == "__main__":
    sys.exit(main())
