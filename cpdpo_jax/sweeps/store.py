"""A run directory: the configuration, the finished blocks and the snapshots of the unfinished ones.

    config.toml            the complete configuration, from which the run can be repeated
    manifest.json          versions, git revision, devices, sessions, hash of the configuration
    blocks.json            the blocks of the run by key, a hash of everything that determines them
    blocks/KEY.nc          the result of a finished block, a data set like that of `Result`
    checkpoints/KEY.npz    the snapshot of an unfinished block (`snapshots`)
    shards/I-of-N.json     the sessions of a shard
    damaged/               damaged files, whose blocks were run again
    lock, lock-I-of-N      held by the running process (`locks`)

Files are written atomically (`common.files`) and have checksums, which are verified on reading. This module imports jax
only to read a result.
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
        """This store; raises if no run is stored here."""
        if self.exists:
            return self
        if (self.path / "config.toml").is_file():
            raise ValueError(
                f"{self.path} has no manifest.json: the run was killed while starting, or the file was lost; give the "
                f"file or the flags of the run again: cpdpo run ... --out {self.path}"
            )
        problem = "is not a run directory (it has no manifest.json)" if self.path.exists() else "does not exist"
        raise ValueError(f"{self.path} {problem}; give the --out of a `cpdpo run`.")

    @property
    def config(self) -> Config:
        """The configuration of the run."""
        remedy = f"give the file or the flags of the run again: cpdpo run ... --out {self.path}"
        return records.read_config(self.path / "config.toml", remedy)

    @property
    def manifest(self) -> dict[str, Any]:
        """Versions, devices, times."""
        path = self.path / "manifest.json"
        remedy = f"cpdpo resume {self.path} --any-version sets it aside and continues with this version"
        content = records.read_json(path, remedy)
        if missing := {"format", "versions", "sessions", "git_revision", "devices"} - set(content):
            raise DamagedError(f"{path} is damaged: it lacks {', '.join(sorted(missing))}; {remedy}")
        return content

    @property
    def blocks(self) -> dict[str, dict[str, Any]]:
        """All blocks of the run by key."""
        return records.read_blocks(self.path / "blocks.json", f"cpdpo resume {self.path} writes it again")

    def result_path(self, key: str) -> Path:
        """The path of a finished block."""
        return self.path / "blocks" / f"{key}.nc"

    def checkpoint_path(self, key: str) -> Path:
        """The path of an unfinished block's snapshot."""
        return self.path / "checkpoints" / f"{key}.npz"

    def is_done(self, key: str) -> bool:
        """Whether a block is finished."""
        return self.result_path(key).is_file()

    @property
    def finished(self) -> bool:
        """Whether a run is stored here and all its blocks are finished."""
        return self.exists and all(map(self.is_done, self.blocks))

    def lock(self, shard: Shard | None = None) -> AbstractContextManager[None]:
        """Hold the lock of the directory, or of a shard."""
        return locks.locked(self.path, shard)

    def holder(self) -> str | None:
        """The processes that run here now; None: no process."""
        return "; ".join(locks.holders(self.path)) or None

    def begin(self, config: Config, blocks: dict[str, dict[str, Any]], shard: Shard | None = None) -> None:
        """Create the files of the run, or add a session to them, while holding the lock; shards may start together."""
        for name in ("blocks", "checkpoints", *(["shards"] if shard else [])):
            (self.path / name).mkdir(exist_ok=True)
        self.clean_up(blocks, shard)
        if shard is not None and self.exists and set(self.blocks) == set(blocks):
            self._begin_shard(shard)
            return
        records.write_config(self.path / "config.toml", config)
        records.write_json(self.path / "blocks.json", {"blocks": blocks})
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
        if self.exists:  # the run has additional blocks
            self.write_manifest(manifest)
        else:
            files.create(self.path / "manifest.json", records.as_json(manifest))  # does not replace another shard's
        self._begin_shard(shard)

    def clean_up(self, blocks: dict[str, dict[str, Any]], shard: Shard | None = None) -> None:
        """Remove temporary files of killed processes and snapshots of finished blocks, of a shard or of all blocks."""
        selected = blocks if shard is None else shard.select(blocks)
        for folder, suffix in (("blocks", "nc"), ("checkpoints", "npz")):
            files.remove_unfinished(
                self.path / folder, None if shard is None else {f"{key}.{suffix}" for key in selected}
            )
        if shard is None:
            files.remove_unfinished(self.path)
        for snapshot in (self.path / "checkpoints").glob("*.npz"):
            if snapshot.stem in selected and self.is_done(snapshot.stem):
                snapshot.unlink(missing_ok=True)

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
    def machine_kind_count(self) -> int:
        """The number of different kinds of machine, which may round differently, in all sessions."""
        sessions = list(self.manifest["sessions"])
        for path in sorted(self.path.glob("shards/*.json")):
            sessions += records.read_sessions(path)
        machines = [kind for session in sessions for kind in session.get("workers") or [session.get("rounding")]]
        return len({json.dumps(kind, sort_keys=True) for kind in machines})

    def end(self, shard: Shard | None = None, machines: Sequence[dict[str, str]] = ()) -> None:
        """Record the end of the session and the kinds of machine of its workers."""
        ended = {"ended": now()} | ({"workers": list(machines)} if machines else {})
        if shard is not None:
            sessions = self._sessions(shard)
            self._write_sessions(shard, [*sessions[:-1], sessions[-1] | ended])
            return
        manifest = self.manifest
        manifest["sessions"][-1] |= ended
        self.write_manifest(manifest)

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Write the manifest."""
        records.write_json(self.path / "manifest.json", manifest)

    def finish(self, key: str, result: Result) -> None:
        """Store the result of a block and delete its snapshot."""
        result.save(self.result_path(key))
        self.checkpoint_path(key).unlink(missing_ok=True)

    def read(self, key: str) -> Plain:
        """The verified result of a finished block."""
        from cpdpo_jax.results import netcdf

        return netcdf.decode(self.verify(key))

    def verify(self, key: str) -> bytes:
        """The content of a finished block's file, after its checksum and key are verified."""
        body = self.read_body(self.result_path(key))
        if key.encode() not in body:
            raise self.damaged_error(self.result_path(key), "it is the file of another block")
        return body

    def read_body(self, path: Path) -> bytes:
        """The verified content of a file without its checksum."""
        try:
            body = files.unseal(path.read_bytes())
        except DamagedError as error:
            raise self.damaged_error(path, str(error)) from error
        if body is None:
            raise self.damaged_error(path, "it has no checksum at its end")
        return body

    def damaged_error(self, path: Path, reason: str) -> DamagedError:
        """The error for a damaged file, with the remedy."""
        return DamagedError(f"{path} is damaged: {reason}; cpdpo resume {self.path} sets it aside and recomputes it")


def _session() -> dict[str, Any]:
    return {
        "started": now(),
        "ended": None,
        "versions": versions(),
        "host": platform.node(),
        "rounding": rounding(),
    }
