"""What of a run directory is no longer what was written: found, named, and set aside so that it is done again."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from pathlib import Path

from cpdpo_jax.common.files import DamagedError
from cpdpo_jax.sweeps import snapshots
from cpdpo_jax.sweeps.store import Store


def damaged(store: Store, keys: Iterable[str]) -> list[tuple[Path, str]]:
    """Every finished block and snapshot that is damaged, and how."""
    found = []
    for key in keys:
        done = store.is_done(key)
        path = store.result_path(key) if done else store.checkpoint_path(key)
        try:
            if done:
                store.verify(key)
            elif path.is_file():
                snapshots.read(store, key)
        except DamagedError as error:
            found.append((path, str(error)))
        except FileNotFoundError:  # finished in between, by a run that is under way
            continue
    return found


def look(store: Store) -> list[tuple[Path, str]]:
    """`damaged` of all blocks of a run, once its small files have been read, each of which is verified."""
    _ = store.manifest, store.config, store.kinds_of_machine
    return damaged(store, store.blocks)


def set_aside(store: Store, keys: Iterable[str], any_version: bool) -> list[str]:
    """Move what is damaged to `damaged/`, with the lock held; what was done, in words.

    A snapshot of another kind of machine is refused, because the bits of its block would then be of two, unless
    `any_version`.
    """
    found = _manifest(store) + (damaged(store, keys) if store.exists else [])
    bad = {path for path, _ in found}
    for key in keys:
        path = store.checkpoint_path(key)
        if not any_version and not store.is_done(key) and path.is_file() and path not in bad:
            _check_machine(store, key)
    said = []
    for path, what in found:
        target = _free(store.path / "damaged" / path.name)
        target.parent.mkdir(exist_ok=True)
        os.replace(path, target)
        said.append(f"{what.partition(';')[0]}; it is now {target}, and is done again.")
    return said


def _manifest(store: Store) -> list[tuple[Path, str]]:
    """The manifest, if it is damaged."""
    try:
        _ = store.exists and store.manifest
    except DamagedError as error:
        return [(store.path / "manifest.json", str(error))]
    return []


def _check_machine(store: Store, key: str) -> None:
    if differ := snapshots.of_another_machine(store, key):
        raise ValueError(
            f"{store.checkpoint_path(key)} was begun on another kind of machine ({differ}), which may round "
            "otherwise; remove it to run its block from the start, or give --any-version to mix the two in one block."
        )


def _free(path: Path) -> Path:
    """The path, or with the first number that makes it a new one."""
    names = itertools.chain([path.name], (f"{path.stem}-{n}{path.suffix}" for n in itertools.count(1)))
    return next(path.with_name(name) for name in names if not path.with_name(name).exists())
