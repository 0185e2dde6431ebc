"""Damaged files of a run directory: detection, and setting them aside so that their blocks run again."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from pathlib import Path

from cpdpo_jax.common.files import DamagedError
from cpdpo_jax.sweeps import snapshots
from cpdpo_jax.sweeps.store import Store


def find_damaged(store: Store, keys: Iterable[str]) -> list[tuple[Path, str]]:
    """The damaged results and snapshots of blocks, each with its error message."""
    damaged = []
    for key in keys:
        done = store.is_done(key)
        path = store.result_path(key) if done else store.checkpoint_path(key)
        try:
            if done:
                store.verify(key)
            elif path.is_file():
                snapshots.read(store, key)
        except DamagedError as error:
            damaged.append((path, str(error)))
        except FileNotFoundError:  # a concurrent run has just finished the block
            continue
    return damaged


def verify_run(store: Store) -> list[tuple[Path, str]]:
    """The damaged files of all blocks; reading the small files of the run verifies those."""
    _ = store.manifest, store.config, store.machine_kind_count
    return find_damaged(store, store.blocks)


def set_aside(store: Store, keys: Iterable[str], any_version: bool) -> list[str]:
    """Move damaged files to `damaged/` while holding the lock; returns a message for each.

    Unless `any_version`, a snapshot from another kind of machine raises: one block would mix the rounding of both.
    """
    damaged = _damaged_manifest(store) + (find_damaged(store, keys) if store.exists else [])
    bad = {path for path, _ in damaged}
    for key in keys:
        path = store.checkpoint_path(key)
        if not any_version and not store.is_done(key) and path.is_file() and path not in bad:
            _check_machine(store, key)
    messages = []
    for path, message in damaged:
        target = _unused_path(store.path / "damaged" / path.name)
        target.parent.mkdir(exist_ok=True)
        os.replace(path, target)
        messages.append(f"{message.partition(';')[0]}; it was moved to {target}, and is computed again.")
    return messages


def _damaged_manifest(store: Store) -> list[tuple[Path, str]]:
    """The manifest and its error message, if it is damaged."""
    try:
        _ = store.exists and store.manifest
    except DamagedError as error:
        return [(store.path / "manifest.json", str(error))]
    return []


def _check_machine(store: Store, key: str) -> None:
    if difference := snapshots.machine_difference(store, key):
        raise ValueError(
            f"{store.checkpoint_path(key)} was written on another kind of machine ({difference}), which may round "
            "differently; remove it to run its block from the start, or give --any-version to mix both in one block."
        )


def _unused_path(path: Path) -> Path:
    """The path, with a number added if it exists."""
    names = itertools.chain([path.name], (f"{path.stem}-{n}{path.suffix}" for n in itertools.count(1)))
    return next(path.with_name(name) for name in names if not path.with_name(name).exists())
