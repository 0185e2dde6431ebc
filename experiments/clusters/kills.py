"""One run of 24 blocks on two local workers, 20 of which are killed at random moments."""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import cpdpo_jax as cp
from cpdpo_jax.sweeps.dask_clusters import connected
from cpdpo_jax.sweeps.engines import Where
from cpdpo_jax.sweeps.store import Store
from experiments.clusters.compare import tell

TABLE = {
    "learners": ["uniform", "podb", "cpdpo"],
    "environments": ["random:layers=2,states=2,actions=2,constraints=1,instances=8"],
    "seeds": 32,
}


def work(out: Path) -> set[tuple[str, int]]:
    """What is stored, and when it was written."""
    found = set()
    for path in (*out.glob("blocks/*.nc"), *out.glob("checkpoints/*.npz")):
        with contextlib.suppress(FileNotFoundError):
            found.add((path.name, path.stat().st_mtime_ns))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--episodes", type=int, default=200_000)
    parser.add_argument("--out", type=Path, default=None)
    asked = parser.parse_args()
    folder = asked.out or Path(tempfile.mkdtemp(prefix="cpdpo-kills-"))
    table = TABLE | {"episodes": asked.episodes}
    cp.run(table, out=folder / "threads")
    killed: list[tuple[int, int]] = []
    chance = random.Random(0)

    def kill(client) -> None:
        while not Store(folder / "dask").exists:
            time.sleep(0.1)
        while len(killed) < asked.kills and not Store(folder / "dask").finished:
            seen = work(folder / "dask")
            while work(folder / "dask") == seen and not Store(folder / "dask").finished:
                time.sleep(0.05)  # until something new is stored: a slow start would be killed for ever
            time.sleep(chance.uniform(0, 3))
            pids = list(client.run(os.getpid, on_error="ignore").values())
            if pids:
                pid = chance.choice(pids)
                os.kill(pid, signal.SIGKILL)
                killed.append((pid, sum(map(Store(folder / "dask").is_done, Store(folder / "dask").blocks))))

    with connected(Where("local:2"), {}, folder, print, print) as cluster:
        killer = threading.Thread(target=kill, args=(cluster.client,))
        killer.start()
        started = time.perf_counter()
        cp.run(table, out=folder / "dask", on=cluster.client, every=0.5)
        seconds = time.perf_counter() - started
        killer.join()
    print(f"{len(killed)} workers killed in {seconds:.0f} s; blocks finished at each kill: {[n for _, n in killed]}")
    good = tell("after the kills, against threads", folder / "dask", folder / "threads") and len(killed) == asked.kills
    if asked.out is None:
        shutil.rmtree(folder)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
