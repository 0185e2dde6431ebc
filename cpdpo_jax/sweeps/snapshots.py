"""Snapshots of unfinished blocks in a run directory: `checkpoints/KEY.npz`, each with a checksum and its block's key.

Nothing here imports jax unless a snapshot is taken up.
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


def keep(store: Store, key: str, snapshot: Snapshot) -> None:
    """Store how far a block has come."""
    arrays = {"episode": snapshot.episode, "believed": snapshot.believed}
    arrays |= {f"record_{name}": value for name, value in snapshot.curves._asdict().items()}
    arrays |= {f"run_{i:04d}": leaf for i, leaf in enumerate(snapshot.state)}
    arrays |= {"key": np.array(key), "rounding": np.array(json.dumps(rounding()))}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    files.write(store.checkpoint_path(key), files.sealed(buffer.getvalue()))


def read(store: Store, key: str) -> dict[str, Any]:
    """What a snapshot holds, verified: arrays by name."""
    path = store.checkpoint_path(key)
    body = store.whole(path)
    if body is None:
        raise store.damage(path, "it has no checksum at its end")
    with np.load(io.BytesIO(body), allow_pickle=False) as file:
        arrays = dict(file)
    if str(arrays["key"]) != key:
        raise store.damage(path, "it is the snapshot of another block")
    return arrays


def load(store: Store, key: str) -> Snapshot | None:
    """How far a block has come; None: not begun."""
    from cpdpo_jax.simulation.blocks import Snapshot
    from cpdpo_jax.simulation.curves import BlockCurves

    if not store.checkpoint_path(key).is_file():
        return None
    arrays = read(store, key)
    state = [arrays[name] for name in sorted(arrays) if name.startswith("run_")]
    curves = BlockCurves(**{name: arrays[f"record_{name}"] for name in BlockCurves._fields})
    return Snapshot(int(arrays["episode"]), arrays["believed"], curves, state)


def episodes_done(store: Store, key: str) -> int:
    """How many episodes the snapshot of an unfinished block has."""
    try:
        return int(read(store, key)["episode"])
    except FileNotFoundError:  # not begun, or finished this moment by whoever runs it
        return 0


def of_another_machine(store: Store, key: str) -> str:
    """What of the machine that a snapshot was made on may round otherwise than this one, in words; "": nothing."""
    if not store.checkpoint_path(key).is_file():
        return ""
    then, here = json.loads(str(read(store, key)["rounding"])), rounding()
    return "; ".join(
        f"{name} {then.get(name)!r} then, {here[name]!r} now" for name in here if then.get(name) != here[name]
    )
