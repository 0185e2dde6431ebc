"""Whether a place fits a run: a directory that holds something else is refused, with what differs."""

from __future__ import annotations

import difflib
import os
from typing import Any

from cpdpo_jax.common import files
from cpdpo_jax.common.files import DamagedError
from cpdpo_jax.sweeps import config as configuration
from cpdpo_jax.sweeps import imports, locks
from cpdpo_jax.sweeps.config import Config
from cpdpo_jax.sweeps.provenance import versions
from cpdpo_jax.sweeps.store import Store


def check(store: Store, config: Config, blocks: dict[str, dict[str, Any]], any_version: bool = False) -> None:
    """Refuse a directory that holds something else, with the difference; more blocks than before are welcome."""
    if not store.exists:
        _check_begun(store, any_version)
        return
    _check_versions(store, any_version)
    _check_imports(store, config)
    try:
        known = store.blocks
    except DamagedError:
        if config.digest != store.config.digest:
            raise
        known = blocks  # those of this very configuration, and written again
    lost = set(known) - set(blocks)
    if lost and config.digest == store.config.digest:
        raise ValueError(
            f"{store.path} was run by other code of your own: a learner or an environment that was registered by hand "
            "has changed since; give another --out, or the code as it was."
        )
    if lost:
        old, new = (store.path / "config.toml").read_text(errors="replace"), configuration.write(config)
        old = "".join(line for line in old.splitlines(True) if not line.startswith("# sha256"))
        lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "stored", "asked", n=0, lineterm="")
        raise ValueError(
            f"{store.path} holds a run of another configuration ({len(lost)} of its {len(known)} blocks are "
            "not asked for now); give another --out. The difference:\n  "
            + "\n  ".join(x for x in lines if x[:2] != "@@")
        )


def _check_versions(store: Store, any_version: bool) -> None:
    """Refuse what another version began: it may round otherwise."""
    try:
        stored = store.manifest["versions"]
    except DamagedError:
        if not any_version:
            raise
        return
    here = versions()
    differ = [f"{name} {stored.get(name)} then, {here[name]} now" for name in here if stored.get(name) != here[name]]
    if differ and not any_version:
        raise ValueError(
            f"{store.path} was run by another version ({'; '.join(differ)}), which may round otherwise; give "
            "another --out, or --any-version to go on all the same."
        )


def _check_imports(store: Store, config: Config) -> None:
    """Refuse a file of the user's own that has changed since: its blocks would not fit together."""
    try:
        stored = store.manifest.get("imports", {})
    except DamagedError:  # and wanted all the same: see `_check_versions`
        return
    for name, here in imports.digests(config.imports).items():
        if stored.get(name, here) != here:
            raise ValueError(
                f"{name} has changed since {store.path} was begun (hash {stored[name]} then, {here} now); give "
                "another --out, or the file as it was."
            )


def _check_begun(store: Store, any_version: bool) -> None:
    """Refuse a place without a manifest, unless it is empty or was left by a run that was killed while it began."""
    if not store.path.exists():
        return
    own = {"config.toml", "blocks.json", "blocks", "checkpoints", "damaged", "shards", "slurm"}
    names = os.listdir(store.path) if store.path.is_dir() else [""]
    if "manifest.json" in names:  # another shard was quicker, and is looked at when this one has begun
        return
    if not all(name in own or name.endswith(files.SUFFIX) or locks.is_lock(name) for name in names):
        raise ValueError(f"{store.path} is there already and holds no run; give another --out.")
    done = [*store.path.glob("blocks/*.nc"), *store.path.glob("checkpoints/*.npz")]
    if done and not any_version and not store.exists:
        raise ValueError(
            f"{store.path / 'manifest.json'} is missing, which says what version ran the {len(done)} blocks there; "
            "give another --out, or --any-version to go on all the same."
        )
