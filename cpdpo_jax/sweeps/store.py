"""A run directory: what was asked, what has been done, and how far the rest has come.

    config.toml            complete; the same run again
    manifest.json          versions, git revision, devices, sessions, hash of the configuration
    blocks.json            the blocks of the run by their key, a hash of all that determines them
    blocks/KEY.nc          a finished block, a data set as of `Result`
    checkpoints/KEY.npz    an unfinished one (`snapshots`)
    shards/I-of-N.json     sessions of a shard
    damaged/               what was found not to be what was written, and was run again
    lock, lock-I-of-N      held by the process that runs (`locks`)

Every file is whole or not there (`common.files`) and has a checksum, which is verified when it is read. Nothing here
imports jax unless a result is read.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpdpo_jax.common import files
from cpdpo_jax.common.files import DamagedError
from cpdpo_jax.sweeps import imports, locks, records
from cpdpo_jax.sweeps.config import Config
from cpdpo_jax.sweeps.provenance import devices, git_revision, now, rounding, versions
from cpdpo_jax.sweeps.shards import Shard

if TYPE_CHECKING:
    from cpdpo_jax.results.netcdf import Plain
    from cpdpo_jax.results.result import Result


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
        if self.exists:
            return self
        if (self.path / "config.toml").is_file():
            raise ValueError(
                f"{self.path} has no manifest.json: it was killed while it began, or has lost it; give the file or the "
                f"flags of the run again: cpdpo run ... --out {self.path}"
            )
        what = "is not a run directory (it has no manifest.json)" if self.path.exists() else "does not exist"
        raise ValueError(f"{self.path} {what}; give the --out of a `cpdpo run`.")

    @property
    def config(self) -> Config:
        """What was asked."""
        remedy = f"give the file or the flags of the run again: cpdpo run ... --out {self.path}"
        return records.read_config(self.path / "config.toml", remedy, checked=self._sealed)

    @property
    def manifest(self) -> dict[str, Any]:
        """Versions, devices, times."""
        path = self.path / "manifest.json"
        remedy = f"cpdpo resume {self.path} --any-version sets it aside and goes on with this version"
        content = records.read_json(path, remedy)
        if missing := {"format", "versions", "sessions", "git_revision", "devices"} - set(content):
            raise DamagedError(f"{path} is damaged: it lacks {', '.join(sorted(missing))}; {remedy}")
        return content

    @property
    def _sealed(self) -> bool:
        """Whether all files have checksums; only very old directories have none."""
        try:
            return self.manifest["format"] > 1
        except DamagedError:
            return True

    @property
    def blocks(self) -> dict[str, dict[str, Any]]:
        """All blocks of the run by key."""
        return records.read_blocks(self.path / "blocks.json", f"cpdpo resume {self.path} writes it again")

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

    def locked(self, shard: Shard | None = None) -> AbstractContextManager[None]:
        """Be the only process that runs here, or that runs this shard."""
        return locks.locked(self.path, shard)

    def holder(self) -> str | None:
        """Who runs here now."""
        return "; ".join(locks.holders(self.path)) or None

    def begin(self, config: Config, blocks: dict[str, dict[str, Any]], shard: Shard | None = None) -> None:
        """Make the directory, or take it up again: to be called with the lock held. Shards may come at once."""
        for name in ("blocks", "checkpoints", *(["shards"] if shard else [])):
            (self.path / name).mkdir(exist_ok=True)
        self.tidy(blocks, shard)
        if shard is not None and self.exists and set(self.blocks) == set(blocks):
            self._begin_shard(shard)
            return
        records.write_config(self.path / "config.toml", config)
        records.write_blocks(self.path / "blocks.json", blocks)
        manifest = self.manifest if self.exists else {"format": records.FORMAT, "created": now(), "sessions": []}
        manifest["versions"] = manifest.get("versions", versions())
        manifest |= {
            "git_revision": git_revision(),
            "config_hash": config.digest,
            "seeds": config.seeds,
            "imports": imports.digests(config.imports),
            "blocks": len(blocks),
            "python": platform.python_version(),
            "machine": platform.platform(),
            "devices": devices(),
        }
        if shard is None:
            manifest["sessions"].append(_session())
            self.write_manifest(manifest)
            return
        if self.exists:  # more blocks than before
            self.write_manifest(manifest)
        else:
            files.create(self.path / "manifest.json", records.as_json(manifest))  # the first shard's stays
        self._begin_shard(shard)

    def tidy(self, blocks: dict[str, dict[str, Any]], shard: Shard | None = None) -> None:
        """Remove what killed processes left half-written, and snapshots of finished blocks; a shard: of its blocks."""
        mine = blocks if shard is None else shard.of(blocks)
        for folder, suffix in (("blocks", "nc"), ("checkpoints", "npz")):
            files.clear(self.path / folder, None if shard is None else {f"{key}.{suffix}" for key in mine})
        if shard is None:
            files.clear(self.path)
        for left in (self.path / "checkpoints").glob("*.npz"):
            if left.stem in mine and self.is_done(left.stem):
                left.unlink()

    def _begin_shard(self, shard: Shard) -> None:
        self._write_sessions(shard, [*self._sessions(shard), _session()])

    def _sessions(self, shard: Shard) -> list[dict[str, Any]]:
        path = self._sessions_path(shard)
        return records.read_sessions(path) if path.is_file() else []

    def _write_sessions(self, shard: Shard, sessions: list[dict[str, Any]]) -> None:
        records.write_json(self._sessions_path(shard), {"sessions": sessions})

    def _sessions_path(self, shard: Shard) -> Path:
        return self.path / "shards" / f"{shard.index}-of-{shard.count}.json"

    @property
    def kinds_of_machine(self) -> int:
        """How many kinds of machine, which may round otherwise, the sessions were on."""
        sessions = list(self.manifest["sessions"])
        for path in sorted(self.path.glob("shards/*.json")):
            sessions += records.read_sessions(path)
        machines = [one for session in sessions for one in session.get("workers") or [session.get("rounding")]]
        return len({json.dumps(one, sort_keys=True) for one in machines})

    def end(self, shard: Shard | None = None, machines: Sequence[dict[str, str]] = ()) -> None:
        """Note when the session ended, and on what kinds of machine its blocks ran, if not in its own process."""
        ended = {"ended": now()} | ({"workers": list(machines)} if machines else {})
        if shard is not None:
            sessions = self._sessions(shard)
            self._write_sessions(shard, [*sessions[:-1], sessions[-1] | ended])
            return
        manifest = self.manifest
        manifest["sessions"][-1] |= ended
        self.write_manifest(manifest)

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Replace the manifest."""
        records.write_json(self.path / "manifest.json", manifest)

    def finish(self, key: str, result: Result) -> None:
        """Store a finished block; its snapshot is no longer needed."""
        result.save(self.result_path(key))
        self.checkpoint_path(key).unlink(missing_ok=True)

    def read(self, key: str) -> Plain:
        """A finished block, verified."""
        from cpdpo_jax.results import netcdf

        body = self.verify(key)
        return netcdf.read(self.result_path(key)) if body is None else netcdf.decode(body)

    def verify(self, key: str) -> bytes | None:
        """The content of a finished block that has its checksum and is this block's; None: of a time before those."""
        body = self.whole(self.result_path(key))
        if body is not None and key.encode() not in body:
            raise self.damage(self.result_path(key), "it is the file of another block")
        return body

    def whole(self, path: Path) -> bytes | None:
        """A file's content without its seal; None: of a time before seals."""
        try:
            body = files.unsealed(path.read_bytes())
        except DamagedError as error:
            raise self.damage(path, str(error)) from error
        if body is None and self._sealed:
            raise self.damage(path, "it has no checksum at its end")
        return body

    def damage(self, path: Path, what: str) -> DamagedError:
        """The error that names a damaged file and the remedy."""
        return DamagedError(f"{path} is damaged: {what}; cpdpo resume {self.path} sets it aside and does it again")


def _session() -> dict[str, Any]:
    return {
        "started": now(),
        "ended": None,
        "versions": versions(),
        "host": platform.node(),
        "rounding": rounding(),
    }
