"""Snapshots of unfinished blocks in a run directory: `checkpoints/KEY.npz`, each with a checksum and its block's key.

This module imports jax only to load a snapshot for resuming.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from cpdpo_jax.common import files
from cpdpo_jax.sweeps.provenance import rounding

if TYPE_CHECKING:
    from cpdpo_jax.simulation.blocks import Snapshot
    from cpdpo_jax.sweeps.store import Store


def save(store: Store, key: str, snapshot: Snapshot) -> None:
    """Store the snapshot of a block."""
    arrays = {"episode": snapshot.episode, "believed": snapshot.believed}
    arrays |= {f"record_{name}": value for name, value in snapshot.curves._asdict().items()}
    arrays |= {f"run_{i:04d}": leaf for i, leaf in enumerate(snapshot.state)}
    arrays |= {"key": np.array(key), "rounding": np.array(json.dumps(rounding()))}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    files.write(store.checkpoint_path(key), files.seal(buffer.getvalue()))


def read(store: Store, key: str) -> dict[str, Any]:
    """The verified arrays of a snapshot by name."""
    path = store.checkpoint_path(key)
    with np.load(io.BytesIO(store.read_body(path)), allow_pickle=False) as file:
        arrays = dict(file)
    if str(arrays["key"]) != key:
        raise store.damaged_error(path, "it is the snapshot of another block")
    return arrays


def load(store: Store, key: str) -> Snapshot | None:
    """The snapshot of a block; None if there is none."""
    from cpdpo_jax.simulation.blocks import Snapshot
    from cpdpo_jax.simulation.curves import BlockCurves

    try:
        arrays = read(store, key)
    except FileNotFoundError:
        return None
    state = [arrays[name] for name in sorted(arrays) if name.startswith("run_")]
    curves = BlockCurves(**{name: arrays[f"record_{name}"] for name in BlockCurves._fields})
    return Snapshot(int(arrays["episode"]), arrays["believed"], curves, state)


def episodes_done(store: Store, key: str) -> int:
    """The episode of an unfinished block's snapshot; 0 if there is none."""
    try:
        return int(read(store, key)["episode"])
    except FileNotFoundError:  # not started, or just finished by another process
        return 0


def machine_difference(store: Store, key: str) -> str:
    """The differences between a snapshot's machine and this one that may affect rounding, as text; "" for none."""
    try:
        then, now = json.loads(str(read(store, key)["rounding"])), rounding()
    except FileNotFoundError:
        return ""
    names = dict.fromkeys([*now, *then])
    return "; ".join(f"{x} {then.get(x)!r} then, {now.get(x)!r} now" for x in names if then.get(x) != now.get(x))
