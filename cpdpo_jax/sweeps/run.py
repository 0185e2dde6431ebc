"""A sweep from Python: `run` does what is not finished in a run directory, `load_run` reads what is.

    tables = cp.run({"learners": ["cpdpo"], "environments": ["hard"], "episodes": 10_000, "seeds": 32}, out="runs/a")
    for environment, episodes, result in tables:
        print(environment, result.summary())

The command line runs by `execute` too: `cpdpo status`, `resume` and `report` understand the same directory.
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
from cpdpo_jax.simulation.blocks import KEEP_SECONDS
from cpdpo_jax.sweeps import config as configuration
from cpdpo_jax.sweeps.config import Config
from cpdpo_jax.sweeps.engines import Where, leave_accelerators, opened
from cpdpo_jax.sweeps.fitting import check
from cpdpo_jax.sweeps.integrity import set_aside
from cpdpo_jax.sweeps.load import Table, load_runs
from cpdpo_jax.sweeps.provenance import rounding
from cpdpo_jax.sweeps.runner import run_all
from cpdpo_jax.sweeps.shards import Shard, parse
from cpdpo_jax.sweeps.specification import expand
from cpdpo_jax.sweeps.store import Store

_Function = TypeVar("_Function", bound=Callable[..., Any])
THREADS = Where()


class Outcome(NamedTuple):
    """What a session in a run directory came to."""

    store: Store
    blocks: int  # of the whole run, or of the shard
    before: int  # those that were finished before
    finished: bool  # False: stopped by Ctrl-C


def run(
    config: Mapping[str, Any] | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    progress: bool = True,
    any_version: bool = False,
    every: float = KEEP_SECONDS,
    shard: str | None = None,
    on: Any = "",
    shared: bool = True,
) -> list[Table]:
    """Run a sweep in the directory `out`, or what of it is not finished there, and return its results.

    config       a table with the keys of a TOML file (see `sweeps.config`), or the path of such a file
    out          the run directory; one that holds a run of another configuration is refused, one that holds a part of
                 this one is taken up
    progress     show a bar with the time left, on a terminal
    any_version  go on with a directory that another version began
    every        seconds between snapshots, from which a run that was killed goes on
    shard        "I/N": only that share of the blocks; other processes may run the others in the same directory at once
    on           where: "" (threads), "local:4", "slurm:16", "tcp://HOST:PORT", "tls://..." or a `distributed.Client`
    shared       False: workers do not see `out`; their results are sent back, and a lost block starts again

    Returns one (environment, episodes, `Result`) per environment and T, as `load_run` does. Ctrl-C raises
    KeyboardInterrupt when all that is done has been kept: the same call goes on from there. Curves that came to a value
    that is not finite are NaN from there on, and `result.data.first_non_finite` says where.
    """
    if not every > 0:
        raise ValueError(f"every = {every!r} is not a positive number of seconds.")
    where = Where(on=on, shared=shared)
    outcome = execute(
        asked(config), out, progress=progress, any_version=any_version, every=every, shard=parse(shard), where=where
    )
    if not outcome.finished:
        raise KeyboardInterrupt(f"stopped; what is done is kept in {out}, and the same call goes on from there")
    return load_runs([outcome.store])


def load_run(directory: str | os.PathLike[str], *more: str | os.PathLike[str]) -> list[Table]:
    """The finished blocks of a run directory: one (environment, episodes, `Result`) per environment and T.

    A run that is not finished has NaN where there is no block yet. Several directories (other seeds, run elsewhere) are
    put together.
    """
    tables = load_runs([Store(one).require() for one in (directory, *more)])
    if not tables:
        raise ValueError(f"{directory} has no finished block yet; go on with: cpdpo resume {directory}")
    return tables


def asked(config: Mapping[str, Any] | str | os.PathLike[str]) -> Config:
    """A configuration, checked, from a table or a file."""
    if isinstance(config, Mapping):
        return configuration.build(config, "the configuration")
    if not isinstance(config, (str, os.PathLike)):
        raise ValueError(f"config is a {type(config).__name__}; give a table of keys, or the path of a TOML file.")
    if not Path(config).is_file():
        raise ValueError(f"config = {str(config)!r}: there is no such file; give a table, or the path of a TOML file.")
    return configuration.build(configuration.read(Path(config)), str(config))


def _names_a_full_disk(function: _Function) -> _Function:
    """Let the error of a full disk name the run directory, wherever in a run it comes."""

    @functools.wraps(function)
    def named(config: Config, out: str | os.PathLike[str], **options: Any) -> Any:
        try:
            return function(config, out, **options)
        except OSError as error:
            if files.is_full(error) and error.filename != str(out):
                raise OSError(error.errno, error.strerror, str(out)) from error
            raise

    return named  # pyright: ignore[reportReturnType]


@_names_a_full_disk
def execute(
    config: Config,
    out: str | os.PathLike[str],
    *,
    progress: bool = True,
    any_version: bool = False,
    every: float = KEEP_SECONDS,
    shard: Shard | None = None,
    lock: bool = True,
    where: Where = THREADS,
    say: Callable[[str], None] = lambda text: None,
    warn: Callable[[str], None] = warnings.warn,
) -> Outcome:
    """Run what is not finished in a run directory, as the only process there, or the only one of its shard.

    A stop is in the outcome. What is damaged there is set aside and done again: `warn` is told. `lock` False: for file
    systems that cannot; nobody else must run there.
    """
    leave_accelerators(where)
    rounding()  # is jax there, with a device? Before anything is written
    blocks = expand(config)
    mine = blocks if shard is None else shard.of(blocks)
    store = Store(out)
    check(store, config, blocks, any_version)
    store.path.mkdir(parents=True, exist_ok=True)
    with store.locked(shard) if lock else nullcontext():
        check(store, config, blocks, any_version)
        elsewhere = where.kind != "threads"  # workers look at the snapshots' machines themselves
        for told in set_aside(store, mine, any_version or elsewhere):
            warn(told)
        with opened(where, config, store.path, say, warn) as engine:
            store.begin(config, blocks, shard)
            if shard is not None:
                check(store, config, blocks, any_version)  # one that came at the same time may have been the first
            before = sum(map(store.is_done, mine))
            of = f" in shard {shard}" if shard else ""
            say(f"{out}: {len(mine)} blocks{of}, {before} finished before, {len(mine) - before} to run.")
            try:
                finished = run_all(store, mine, engine, every=every, quiet=not progress)
                store.tidy(blocks, shard)  # what lost workers left
                store.end(shard, engine.machines)
            except OSError as error:
                if error.errno is None:
                    raise
                raise OSError(error.errno, error.strerror, str(out)) from error
    return Outcome(store, len(mine), before, finished)
