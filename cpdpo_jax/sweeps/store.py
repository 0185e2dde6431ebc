"""A run directory: what was asked, what has been done, and how far the rest has come.

    config.toml            complete; the same run again
    manifest.json          versions, git revision, devices, sessions, hash of the configuration
    blocks.json            the blocks of the run by their key, a hash of all that determines them
    blocks/KEY.nc          a finished block, a data set as of `Result`
    checkpoints/KEY.npz    an unfinished one
    lock                   held by the process that runs

Every file is whole or not there (`common.files`). Nothing here imports jax unless a snapshot or result is read.
"""

from __future__ import annotations

import difflib
import fcntl
import io
import json
import os
import platform
import socket
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpdpo_jax.common import files
from cpdpo_jax.sweeps import config as configuration
from cpdpo_jax.sweeps.config import Config
from cpdpo_jax.sweeps.provenance import devices, git_revision, now, versions

if TYPE_CHECKING:
    from cpdpo_jax.results.result import Result
    from cpdpo_jax.simulation.blocks import Snapshot

FORMAT = 1


class Store:
    """A run directory."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @property
    def exists(self) -> bool:
        """Whether a run is stored here."""
        return (self.path / "manifest.json").is_file()

    def require(self) -> Store:
        """Itself, if a run is stored here."""
        if not self.exists:
            what = "is not a run directory (it has no manifest.json)" if self.path.exists() else "does not exist"
            raise ValueError(f"{self.path} {what}; give the --out of a `cpdpo run`.")
        return self

    @property
    def config(self) -> Config:
        """What was asked."""
        path = self.path / "config.toml"
        return configuration.build(configuration.read(path), str(path))

    @property
    def manifest(self) -> dict[str, Any]:
        """Versions, devices, times."""
        return json.loads((self.path / "manifest.json").read_text())

    @property
    def blocks(self) -> dict[str, dict[str, Any]]:
        """All blocks of the run by key."""
        return json.loads((self.path / "blocks.json").read_text())

    def result_path(self, key: str) -> Path:
        """Where a finished block is."""
        return self.path / "blocks" / f"{key}.nc"

    def checkpoint_path(self, key: str) -> Path:
        """Where an unfinished block is."""
        return self.path / "checkpoints" / f"{key}.npz"

    def is_done(self, key: str) -> bool:
        """Whether a block is finished."""
        return self.result_path(key).is_file()

    @property
    def finished(self) -> bool:
        """Whether a run is stored here, and all of it."""
        return self.exists and all(map(self.is_done, self.blocks))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only process that runs here; the system lets go of the lock when the process ends, however it ends."""
        with open(self.path / "lock", "a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                file.seek(0)
                holder = file.read().strip() or "another process"
                raise ValueError(f"{self.path} is being run by {holder}; wait for it, or end it first.") from error
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
            yield
            file.truncate(0)

    def holder(self) -> str | None:
        """Who runs here now."""
        try:
            with open(self.path / "lock") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except OSError:
                    return file.read().strip() or "another process"
        except FileNotFoundError:
            pass
        return None

    def check(self, config: Config, blocks: dict[str, dict[str, Any]], any_version: bool = False) -> None:
        """Refuse a directory that holds something else, with the difference; more blocks than before are welcome."""
        if not self.exists:
            if self.path.exists() and (not self.path.is_dir() or any(set(os.listdir(self.path)) - {"lock"})):
                raise ValueError(f"{self.path} is there already and holds no run; give another --out.")
            return
        stored, here = self.manifest["versions"], versions()
        differ = [
            f"{name} {stored.get(name)} then, {here[name]} now" for name in here if stored.get(name) != here[name]
        ]
        if differ and not any_version:
            raise ValueError(
                f"{self.path} was run by another version ({'; '.join(differ)}), which may round otherwise; give "
                "another --out, or --any-version to go on all the same."
            )
        lost = set(self.blocks) - set(blocks)
        if lost:
            old, new = (self.path / "config.toml").read_text(), configuration.write(config)
            lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "stored", "asked", n=0, lineterm="")
            raise ValueError(
                f"{self.path} holds a run of another configuration ({len(lost)} of its {len(self.blocks)} blocks are "
                "not asked for now); give another --out. The difference:\n  "
                + "\n  ".join(x for x in lines if x[:2] != "@@")
            )

    def begin(self, config: Config, blocks: dict[str, dict[str, Any]]) -> None:
        """Make the directory, or take it up again: to be called with the lock held."""
        for name in ("blocks", "checkpoints"):
            (self.path / name).mkdir(exist_ok=True)
            files.clear(self.path / name)
        files.clear(self.path)
        for left in (self.path / "checkpoints").glob("*.npz"):
            if self.is_done(left.stem):
                left.unlink()
        files.write(self.path / "config.toml", configuration.write(config))
        files.write(self.path / "blocks.json", json.dumps(blocks, indent=1))
        manifest = self.manifest if self.exists else {"format": FORMAT, "created": now(), "sessions": []}
        manifest["versions"] = manifest.get("versions", versions())
        manifest |= {
            "git_revision": git_revision(),
            "config_hash": config.digest,
            "seeds": config.seeds,
            "blocks": len(blocks),
            "python": platform.python_version(),
            "machine": platform.platform(),
            "devices": devices(),
        }
        manifest["sessions"].append({"started": now(), "ended": None, "versions": versions()})
        self.write_manifest(manifest)

    def end(self) -> None:
        """Note when the session ended."""
        manifest = self.manifest
        manifest["sessions"][-1]["ended"] = now()
        self.write_manifest(manifest)

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Replace the manifest."""
        files.write(self.path / "manifest.json", json.dumps(manifest, indent=1))

    def keep(self, key: str, snapshot: Snapshot) -> None:
        """Store how far a block has come."""
        arrays = {"episode": snapshot.episode, "believed": snapshot.believed}
        arrays |= {f"record_{name}": value for name, value in snapshot.curves._asdict().items()}
        arrays |= {f"run_{i:04d}": leaf for i, leaf in enumerate(snapshot.state)}
        import numpy as np

        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # pyright: ignore[reportArgumentType]
        files.write(self.checkpoint_path(key), buffer.getvalue())

    def snapshot(self, key: str) -> Snapshot | None:
        """How far a block has come; None: not begun."""
        import numpy as np

        from cpdpo_jax.simulation.blocks import Snapshot
        from cpdpo_jax.simulation.curves import BlockCurves

        try:
            with np.load(self.checkpoint_path(key), allow_pickle=False) as file:
                arrays = dict(file)
        except (FileNotFoundError, zipfile.BadZipFile):
            return None
        state = [arrays[name] for name in sorted(arrays) if name.startswith("run_")]
        curves = BlockCurves(**{name: arrays[f"record_{name}"] for name in BlockCurves._fields})
        return Snapshot(int(arrays["episode"]), arrays["believed"], curves, state)

    def episodes_done(self, key: str) -> int:
        """How many episodes the snapshot of an unfinished block has."""
        import numpy as np

        try:
            with np.load(self.checkpoint_path(key), allow_pickle=False) as file:
                return int(file["episode"])
        except (FileNotFoundError, zipfile.BadZipFile):
            return 0

    def finish(self, key: str, result: Result) -> None:
        """Store a finished block; its snapshot is no longer needed."""
        result.save(self.result_path(key))
        self.checkpoint_path(key).unlink(missing_ok=True)
