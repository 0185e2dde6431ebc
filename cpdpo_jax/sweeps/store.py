"""A run directory: what was asked, what has been done, and how far the rest has come.

    config.toml            complete; the same run again
    manifest.json          versions, git revision, devices, sessions, hash of the configuration
    blocks.json            the blocks of the run by their key, a hash of all that determines them
    blocks/KEY.nc          a finished block, a data set as of `Result`
    checkpoints/KEY.npz    an unfinished one
    shards/I-of-N.json     sessions of a shard
    damaged/               what was found not to be what was written, and was run again
    lock, lock-I-of-N      held by the process that runs (`locks`)

Every file is whole or not there (`common.files`) and has a checksum, which is verified when it is read. Nothing here
imports jax unless a snapshot or result is read.
"""

from __future__ import annotations

import difflib
import io
import json
import os
import platform
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpdpo_jax.common import files
from cpdpo_jax.common.files import DamagedError
from cpdpo_jax.sweeps import config as configuration
from cpdpo_jax.sweeps import imports, locks, records
from cpdpo_jax.sweeps.config import Config
from cpdpo_jax.sweeps.provenance import devices, git_revision, now, rounding, versions
from cpdpo_jax.sweeps.shards import Shard

if TYPE_CHECKING:
    import numpy as np

    from cpdpo_jax.results.netcdf import Plain
    from cpdpo_jax.results.result import Result
    from cpdpo_jax.simulation.blocks import Snapshot


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

    def check(self, config: Config, blocks: dict[str, dict[str, Any]], any_version: bool = False) -> None:
        """Refuse a directory that holds something else, with the difference; more blocks than before are welcome."""
        if not self.exists:
            self._check_begun(any_version)
            return
        try:
            stored = self.manifest["versions"]
        except DamagedError:
            if not any_version:
                raise
            stored = versions()
        here = versions()
        differ = [
            f"{name} {stored.get(name)} then, {here[name]} now" for name in here if stored.get(name) != here[name]
        ]
        if differ and not any_version:
            raise ValueError(
                f"{self.path} was run by another version ({'; '.join(differ)}), which may round otherwise; give "
                "another --out, or --any-version to go on all the same."
            )
        self._check_imports(config)
        try:
            known = self.blocks
        except DamagedError:
            if config.digest != self.config.digest:
                raise
            known = blocks  # those of this very configuration, and written again
        lost = set(known) - set(blocks)
        if lost:
            old, new = (self.path / "config.toml").read_text(errors="replace"), configuration.write(config)
            old = "".join(line for line in old.splitlines(True) if not line.startswith("# sha256"))
            lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "stored", "asked", n=0, lineterm="")
            raise ValueError(
                f"{self.path} holds a run of another configuration ({len(lost)} of its {len(known)} blocks are "
                "not asked for now); give another --out. The difference:\n  "
                + "\n  ".join(x for x in lines if x[:2] != "@@")
            )

    def _check_imports(self, config: Config) -> None:
        """Refuse a file of the user's own that has changed since: its blocks would not fit together."""
        try:
            stored = self.manifest.get("imports", {})
        except DamagedError:  # and wanted all the same: see `check`
            return
        for name, here in imports.digests(config.imports).items():
            if stored.get(name, here) != here:
                raise ValueError(
                    f"{name} has changed since {self.path} was begun (hash {stored[name]} then, {here} now); give "
                    "another --out, or the file as it was."
                )

    def _check_begun(self, any_version: bool) -> None:
        """Refuse a place without a manifest, unless it is empty or was left by a run that was killed while it began."""
        if not self.path.exists():
            return
        own = {"config.toml", "blocks.json", "blocks", "checkpoints", "damaged", "shards", "slurm"}
        names = os.listdir(self.path) if self.path.is_dir() else [""]
        if "manifest.json" in names:  # another shard was quicker, and is looked at when this one has begun
            return
        if not all(name in own or name.endswith(files.SUFFIX) or locks.is_lock(name) for name in names):
            raise ValueError(f"{self.path} is there already and holds no run; give another --out.")
        done = [*self.path.glob("blocks/*.nc"), *self.path.glob("checkpoints/*.npz")]
        if done and not any_version and not self.exists:
            raise ValueError(
                f"{self.path / 'manifest.json'} is missing, which says what version ran the {len(done)} blocks there; "
                "give another --out, or --any-version to go on all the same."
            )

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
        return records.read_json(path, "remove it; it is for people")["sessions"] if path.is_file() else []

    def _write_sessions(self, shard: Shard, sessions: list[dict[str, Any]]) -> None:
        records.write_json(self._sessions_path(shard), {"sessions": sessions})

    def _sessions_path(self, shard: Shard) -> Path:
        return self.path / "shards" / f"{shard.index}-of-{shard.count}.json"

    @property
    def kinds_of_machine(self) -> int:
        """How many kinds of machine, which may round otherwise, the sessions were on."""
        sessions = list(self.manifest["sessions"])
        for path in sorted(self.path.glob("shards/*.json")):
            sessions += records.read_json(path, "remove it; it is for people")["sessions"]
        return len({json.dumps(one.get("rounding"), sort_keys=True) for one in sessions})

    def end(self, shard: Shard | None = None) -> None:
        """Note when the session ended."""
        if shard is not None:
            sessions = self._sessions(shard)
            self._write_sessions(shard, [*sessions[:-1], sessions[-1] | {"ended": now()}])
            return
        manifest = self.manifest
        manifest["sessions"][-1]["ended"] = now()
        self.write_manifest(manifest)

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Replace the manifest."""
        records.write_json(self.path / "manifest.json", manifest)

    def keep(self, key: str, snapshot: Snapshot) -> None:
        """Store how far a block has come."""
        import numpy as np

        arrays = {"episode": snapshot.episode, "believed": snapshot.believed}
        arrays |= {f"record_{name}": value for name, value in snapshot.curves._asdict().items()}
        arrays |= {f"run_{i:04d}": leaf for i, leaf in enumerate(snapshot.state)}
        arrays |= {"key": np.array(key), "rounding": np.array(json.dumps(rounding()))}
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # pyright: ignore[reportArgumentType]
        files.write(self.checkpoint_path(key), files.sealed(buffer.getvalue()))

    def arrays(self, key: str) -> dict[str, np.ndarray]:
        """What a snapshot holds."""
        import numpy as np

        path = self.checkpoint_path(key)
        body = self._whole(path)
        if body is None:
            raise self._damage(path, "it has no checksum at its end")
        with np.load(io.BytesIO(body), allow_pickle=False) as file:
            arrays = dict(file)
        if str(arrays["key"]) != key:
            raise self._damage(path, "it is the snapshot of another block")
        return arrays

    def snapshot(self, key: str) -> Snapshot | None:
        """How far a block has come; None: not begun."""
        from cpdpo_jax.simulation.blocks import Snapshot
        from cpdpo_jax.simulation.curves import BlockCurves

        if not self.checkpoint_path(key).is_file():
            return None
        arrays = self.arrays(key)
        state = [arrays[name] for name in sorted(arrays) if name.startswith("run_")]
        curves = BlockCurves(**{name: arrays[f"record_{name}"] for name in BlockCurves._fields})
        return Snapshot(int(arrays["episode"]), arrays["believed"], curves, state)

    def episodes_done(self, key: str) -> int:
        """How many episodes the snapshot of an unfinished block has."""
        try:
            return int(self.arrays(key)["episode"])
        except FileNotFoundError:  # not begun, or finished this moment by whoever runs it
            return 0

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
        body = self._whole(self.result_path(key))
        if body is not None and key.encode() not in body:
            raise self._damage(self.result_path(key), "it is the file of another block")
        return body

    def _whole(self, path: Path) -> bytes | None:
        """A file's content without its seal; None: of a time before seals."""
        try:
            body = files.unsealed(path.read_bytes())
        except DamagedError as error:
            raise self._damage(path, str(error)) from error
        if body is None and self._sealed:
            raise self._damage(path, "it has no checksum at its end")
        return body

    def _damage(self, path: Path, what: str) -> DamagedError:
        return DamagedError(f"{path} is damaged: {what}; cpdpo resume {self.path} sets it aside and does it again")


def _session() -> dict[str, Any]:
    return {
        "started": now(),
        "ended": None,
        "versions": versions(),
        "host": platform.node(),
        "rounding": rounding(),
    }
