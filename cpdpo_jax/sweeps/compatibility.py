"""Checks that a run directory fits a run; the error lists the differences."""

from __future__ import annotations

import difflib
import os
from typing import Any

from cpdpo_jax.common import files
from cpdpo_jax.common.files import DamagedError
from cpdpo_jax.sweeps import config_text, imports, locks
from cpdpo_jax.sweeps.config import Config
from cpdpo_jax.sweeps.provenance import versions
from cpdpo_jax.sweeps.store import Store


def check(store: Store, config: Config, blocks: dict[str, dict[str, Any]], any_version: bool = False) -> None:
    """Raise if the directory holds a different run; a run with additional blocks is accepted."""
    if not store.exists:
        _check_no_manifest(store, any_version)
        return
    check_versions(store, any_version)
    _check_imports(store, config)
    try:
        known = store.blocks
    except DamagedError:
        if config.digest != store.config.digest:
            raise
        known = blocks  # the configuration is the same, so the file can be written again
    missing = set(known) - set(blocks)
    if missing and config.digest == store.config.digest:
        raise ValueError(
            f"{store.path} was run with a different version of a learner or an environment that your code registers; "
            "give another --out, or restore the code."
        )
    if missing:
        old, new = (store.path / "config.toml").read_text(errors="replace"), config_text.to_toml(config.table())
        old = "".join(line for line in old.splitlines(True) if not line.startswith("# sha256"))
        lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "stored", "requested", n=0, lineterm="")
        raise ValueError(
            f"{store.path} holds a run of another configuration ({len(missing)} of its {len(known)} blocks are not "
            "part of this run); give another --out. The difference:\n  "
            + "\n  ".join(line for line in lines if line[:2] != "@@")
        )


def check_owner(store: Store, config: Config) -> None:
    """Raise if another user's directory names imports, which resuming would execute; call it before loading them."""
    if not config.imports or not hasattr(os, "getuid"):
        return
    for path in (store.path, store.path / "config.toml", store.path / "manifest.json"):
        if path.stat().st_uid != os.getuid():
            raise ValueError(
                f"{path} belongs to another user (uid {path.stat().st_uid}), and resuming would execute "
                f"{', '.join(config.imports)}; inspect that code, then copy the directory and resume the copy."
            )


def check_versions(store: Store, any_version: bool) -> None:
    """Raise if another version started the run, because it may round differently."""
    try:
        stored = store.manifest["versions"]
    except DamagedError:
        if not any_version:
            raise
        return
    current = versions()
    changes = [f"{x} {stored.get(x)} then, {current[x]} now" for x in current if stored.get(x) != current[x]]
    if changes and not any_version:
        raise ValueError(
            f"{store.path} was run by another version ({'; '.join(changes)}), which may round differently; give "
            "another --out, or --any-version to resume it anyway."
        )


def _check_imports(store: Store, config: Config) -> None:
    """Raise if an imported file has changed since the run started: its blocks would be inconsistent."""
    try:
        stored = store.manifest.get("imports", {})
    except DamagedError:  # accepted by --any-version, see `check_versions`
        return
    for name in config.imports:
        current = imports.read(name)
        if stored.get(name, current.digest) == current.digest:
            continue
        if current.unhashed:
            raise ValueError(
                f"{name} loads {', '.join(current.unhashed)}, which has no source file, so a change since "
                f"{store.path} was started cannot be detected; give another --out, or put that code into .py files."
            )
        raise ValueError(
            f"{name}, or a module that it imports, has changed since {store.path} was started (hash {stored[name]} "
            f"then, {current.digest} now); give another --out, or restore the code."
        )


def _check_no_manifest(store: Store, any_version: bool) -> None:
    """Raise for a directory without a manifest, unless it is empty or its run was killed while starting."""
    if not store.path.exists():
        return
    run_files = {"config.toml", "blocks.json", "blocks", "checkpoints", "damaged", "shards", "slurm"}
    names = os.listdir(store.path) if store.path.is_dir() else [""]
    if "manifest.json" in names:  # another shard was faster; it is checked when this one has started
        return
    if not all(name in run_files or name.endswith(files.SUFFIX) or locks.is_lock(name) for name in names):
        raise ValueError(f"{store.path} exists and holds no run; give another --out.")
    done = [*store.path.glob("blocks/*.nc"), *store.path.glob("checkpoints/*.npz")]
    if done and not any_version and not store.exists:
        raise ValueError(
            f"{store.path / 'manifest.json'} is missing, so the version that ran the {len(done)} blocks there is "
            "unknown; give another --out, or --any-version to resume anyway."
        )
