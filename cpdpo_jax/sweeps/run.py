"""Sweeps from Python: `run` runs the unfinished blocks of a run directory, `load_run` reads the finished ones.

    tables = cp.run({"learners": ["cpdpo"], "environments": ["hard"], "episodes": 10_000, "seeds": 32}, out="runs/a")
    for environment, episodes, result in tables:
        print(environment, result.summary())

The command line uses `execute`, too, so `cpdpo status`, `resume` and `report` work on the same directory.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from cpdpo_jax.common import files
from cpdpo_jax.common.interrupts import interrupts
from cpdpo_jax.common.text import counted, shown
from cpdpo_jax.simulation.blocks import SNAPSHOT_SECONDS
from cpdpo_jax.simulation.inputs import refuse_rank_promotion
from cpdpo_jax.sweeps import config as configuration
from cpdpo_jax.sweeps import config_text
from cpdpo_jax.sweeps.compatibility import check, check_versions
from cpdpo_jax.sweeps.config import Config
from cpdpo_jax.sweeps.engine_spec import DaskClient, EngineSpec
from cpdpo_jax.sweeps.engines import disable_preallocation, open_engine
from cpdpo_jax.sweeps.integrity import set_aside
from cpdpo_jax.sweeps.load import Table, load_runs
from cpdpo_jax.sweeps.provenance import rounding
from cpdpo_jax.sweeps.runner import run_all
from cpdpo_jax.sweeps.shards import Shard, parse
from cpdpo_jax.sweeps.specification import expand
from cpdpo_jax.sweeps.store import Store

_Function = TypeVar("_Function", bound=Callable[..., Any])
THREADS = EngineSpec()


class Outcome(NamedTuple):
    """The outcome of a session in a run directory."""

    store: Store
    blocks: int  # in the run, or in the shard
    before: int  # blocks that were finished before the session
    finished: bool  # False: stopped by Ctrl-C


def run(
    config: Mapping[str, Any] | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    progress: bool = True,
    any_version: bool = False,
    every: float = SNAPSHOT_SECONDS,
    shard: str | None = None,
    on: str | DaskClient = "",
    shared: bool = True,
) -> list[Table]:
    """Run the unfinished blocks of a sweep in the directory `out` and return all results.

    config       a table with the keys of a TOML file (see `sweeps.config`), or the path of such a file
    out          the run directory; part of the same run is resumed, a run of another configuration raises ValueError
    progress     show a progress bar on a terminal
    any_version  resume a directory that another version of the package started
    every        seconds between snapshots, from which a killed run resumes
    shard        "I/N": run only shard I of N; other processes may run the other shards in the same directory
    on           "" (threads), "local:4", "slurm:16", "tcp://HOST:PORT", "tls://..." or a `distributed.Client`
    shared       False: workers cannot see `out` and send their results back; a lost block restarts from the beginning

    Returns one (environment, episodes, `Result`) per environment and T, like `load_run`. Ctrl-C stores a snapshot and
    raises KeyboardInterrupt; the same call resumes. Curves are NaN from their first non-finite value on, whose episode
    is `result.data.first_non_finite`.
    """
    if not every > 0:
        raise ValueError(f"every = {shown(every)} is not a positive number of seconds.")
    outcome = execute(
        build_config(config),
        out,
        progress=progress,
        any_version=any_version,
        every=every,
        shard=parse(shard),
        engine_spec=EngineSpec(on=on, shared=shared),
    )
    if not outcome.finished:
        raise KeyboardInterrupt(f"stopped; the progress is stored in {out}, and the same call resumes")
    return load_runs([outcome.store])


def load_run(directory: str | os.PathLike[str], *more: str | os.PathLike[str]) -> list[Table]:
    """The finished blocks of a run directory: one (environment, episodes, `Result`) per environment and T.

    Values of unfinished blocks are NaN. Several directories, such as runs of other seeds, are combined.
    """
    tables = load_runs([Store(path).require() for path in (directory, *more)])
    if not tables:
        raise ValueError(f"{directory} has no finished block yet; resume with: cpdpo resume {directory}")
    return tables


def build_config(config: Mapping[str, Any] | str | os.PathLike[str]) -> Config:
    """The checked configuration of a table or a file."""
    if isinstance(config, Mapping):
        return configuration.build(config, "the configuration")
    if not isinstance(config, (str, os.PathLike)):
        raise ValueError(f"config is a {type(config).__name__}; give a table of keys, or the path of a TOML file.")
    if not Path(config).is_file():
        raise ValueError(f"config = {str(config)!r}: there is no such file; give a table, or the path of a TOML file.")
    return configuration.build(config_text.read(Path(config)), str(config))


def _with_directory(function: _Function) -> _Function:
    """Add the run directory to the error of a full disk, and to errors of the disk without a file."""

    @functools.wraps(function)
    def wrapped(config: Config, out: str | os.PathLike[str], **options: Any) -> Any:
        try:
            return function(config, out, **options)
        except OSError as error:
            if error.errno is not None and (error.filename is None or files.is_disk_full(error)):
                raise OSError(error.errno, error.strerror, str(out)) from error
            raise

    return wrapped  # pyright: ignore[reportReturnType]


@_with_directory
@interrupts()
def execute(
    config: Config,
    out: str | os.PathLike[str],
    *,
    progress: bool = True,
    any_version: bool = False,
    every: float = SNAPSHOT_SECONDS,
    shard: Shard | None = None,
    lock: bool = True,
    engine_spec: EngineSpec = THREADS,
    log: Callable[[str], None] = lambda text: None,
    warn: Callable[[str], None] = warnings.warn,
) -> Outcome:
    """Run the unfinished blocks of a run, or of a shard, while holding its lock.

    Damaged files are set aside with a call of `warn`, and their blocks run again. lock=False is for file systems
    without locks; no other process may then run in the directory. Ctrl-C sets `Outcome.finished` to False.
    """
    disable_preallocation(engine_spec)
    rounding()  # raises if jax has no device, before anything is written
    refuse_rank_promotion()
    if Store(out).exists:
        check_versions(Store(out), any_version)  # before imports are executed
    blocks = expand(config, log)
    selected = blocks if shard is None else shard.select(blocks)
    store = Store(out)
    check(store, config, blocks, any_version)
    store.path.mkdir(parents=True, exist_ok=True)
    with store.lock(shard) if lock else nullcontext():
        check(store, config, blocks, any_version)
        remote = engine_spec.kind != "threads"  # workers check the machines of snapshots themselves
        for message in set_aside(store, selected, any_version or remote):
            warn(message)
        with open_engine(engine_spec, config, store.path, log, warn) as engine:
            store.begin(config, blocks, shard)
            if shard is not None:
                check(store, config, blocks, any_version)  # another shard may have started first
            before = sum(map(store.is_done, selected))
            place = f" in shard {shard}" if shard else ""
            count = counted(len(selected), "block")
            log(f"{out}: {count}{place}, {before} finished before, {len(selected) - before} to run.")
            finished = run_all(store, selected, engine, every=every, quiet=not progress)
            store.clean_up(blocks, shard)  # files of lost workers
            store.end(shard, engine.machines)
    return Outcome(store, len(selected), before, finished)
