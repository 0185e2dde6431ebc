"""Engines that run blocks: the threads of this process, or dask workers (see `engine_spec`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cpdpo_jax.kernels.machines import programs
from cpdpo_jax.simulation.workers import Job, run_jobs, use_compilation_cache, worker_count
from cpdpo_jax.sweeps.config import Config
from cpdpo_jax.sweeps.engine_spec import EngineSpec
from cpdpo_jax.sweeps.packing import Pack
from cpdpo_jax.sweeps.runner import Engine, compile_pack, run_pack
from cpdpo_jax.sweeps.store import Store


class ThreadEngine:
    """Runs blocks in threads of this process."""

    machines = ()

    @property
    def workers(self) -> int:
        """The number of blocks that run in parallel."""
        return worker_count()

    def run(self, store: Store, packs: Sequence[Pack], *, every: float, progress: bool) -> bool:
        """Run packs and store them; False if stopped by Ctrl-C. An error in one pack stops the others at a snapshot."""
        programs.warn_if_options_are_missing()
        use_compilation_cache()
        _, interrupted = run_jobs([_job(store, pack, every) for pack in packs], progress=progress)
        return not interrupted


def _job(store: Store, pack: Pack, every: float) -> Job:
    """A pack as a job of `run_jobs`."""
    return Job(
        label=pack.label,
        program=pack.program,
        work=pack.work,
        compile=lambda: compile_pack(pack),
        run=lambda advanced, stop: run_pack(store, pack, advanced, stop, every),
    )


def disable_preallocation(spec: EngineSpec) -> None:
    """Keep this process from allocating the GPU memory that workers need; call it before jax looks for devices."""
    if spec.kind != "threads":
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


@contextmanager
def open_engine(
    spec: EngineSpec, config: Config, directory: Path, log: Callable[[str], None], warn: Callable[[str], None]
) -> Iterator[Engine]:
    """The engine of a run; on exit it stops the workers that it started."""
    if spec.kind == "threads":
        yield ThreadEngine()
        return
    from cpdpo_jax.sweeps.dask.clusters import connect
    from cpdpo_jax.sweeps.dask.engine import DaskEngine

    with connect(spec, config.slurm, directory, log, warn) as cluster:
        yield DaskEngine(cluster, shared=spec.shared, imports=config.imports, warn=warn)
