"""Where blocks run: the threads of this process, or dask's workers. The runner does not know which.

on = ""                         threads, one for every core or accelerator of this machine
on = "local:4"                  four worker processes on this machine
on = "tcp://HOST:8786"          a dask scheduler that is there already; "tls://..." with certificates
on = "slurm:16"                 sixteen jobs, described by the table [slurm]
on = a `distributed.Client`     from Python
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cpdpo_jax.simulation.workers import Job, how_many, run_jobs, use_compilation_cache
from cpdpo_jax.sweeps.config import Config
from cpdpo_jax.sweeps.packing import Pack
from cpdpo_jax.sweeps.runner import Engine, compile_pack, run_pack
from cpdpo_jax.sweeps.specification import kind
from cpdpo_jax.sweeps.store import Store

KINDS = ("local", "slurm")


@dataclass(frozen=True)
class Where:
    """Where a run's blocks are to run, as it was asked."""

    on: Any = ""  # text as above, or a `distributed.Client`
    shared: bool = True  # workers see the run directory; False: results are sent back
    tls: dict[str, str] = field(default_factory=dict)  # ca, cert, key: files

    def __post_init__(self) -> None:
        if self.on and not isinstance(self.on, str) and not hasattr(self.on, "submit"):
            raise ValueError(f"on is a {type(self.on).__name__}; give a text such as 'local:4', or a dask Client.")
        if (
            isinstance(self.on, str)
            and self.on
            and not re.fullmatch(r"(local|slurm)(:[1-9]\d*)?|t(cp|ls)://.+", self.on)
        ):
            raise ValueError(
                f"on = {self.on!r} is not known; give local:4, slurm:16, tcp://HOST:PORT or tls://HOST:PORT."
            )
        if self.tls and set(self.tls) != {"ca", "cert", "key"}:
            raise ValueError(f"TLS needs ca, cert and key; only {', '.join(sorted(self.tls))} is given.")
        if self.on and importlib.util.find_spec("distributed") is None:
            raise ValueError(f"on = {self.on!r} needs dask; install it with: pip install 'cpdpo_jax[dask]'")
        for path in self.tls.values():
            if not Path(path).is_file():
                raise ValueError(f"TLS: {path} is not a file.")

    @property
    def kind(self) -> str:
        """threads, local, slurm, address or client."""
        if not self.on:
            return "threads"
        if not isinstance(self.on, str):
            return "client"
        return self.on.partition(":")[0] if self.on.startswith(KINDS) else "address"

    @property
    def count(self) -> int | None:
        """How many workers or jobs; None: not said."""
        number = self.on.partition(":")[2] if self.kind in KINDS else ""
        return int(number) if number else None


class Threads:
    """Blocks run in threads of this process."""

    machines = ()

    @property
    def workers(self) -> int:
        """Blocks that run at once."""
        return how_many()

    def run(self, store: Store, packs: Sequence[Pack], *, every: float, progress: bool) -> bool:
        """Run packs and store them; False if stopped by Ctrl-C. An error in one stops the others at a snapshot."""
        use_compilation_cache()
        _, interrupted = run_jobs([_job(store, pack, every) for pack in packs], progress=progress)
        return not interrupted


def _job(store: Store, pack: Pack, every: float) -> Job:
    """A pack for the threads."""
    block = next(iter(pack.blocks.values()))
    return Job(
        label=pack.label,
        program=kind(block, pack.batch),
        work=pack.work,
        compile=lambda: compile_pack(block, pack.batch),
        run=lambda advanced, stop: run_pack(store, pack, advanced, stop, every),
    )


def leave_accelerators(where: Where) -> None:
    """To be called before jax looks for devices: where others compute, this process must not take their memory."""
    if where.kind != "threads":
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


@contextmanager
def opened(
    where: Where, config: Config, directory: Path, say: Callable[[str], None], warn: Callable[[str], None]
) -> Iterator[Engine]:
    """What runs the blocks; its workers end with it, unless they were there before."""
    if where.kind == "threads":
        yield Threads()
        return
    from cpdpo_jax.sweeps.dask_clusters import connected
    from cpdpo_jax.sweeps.dask_engine import Dask

    with connected(where, config.slurm, directory, say, warn) as cluster:
        yield Dask(cluster, shared=where.shared, imports=config.imports, warn=warn)
