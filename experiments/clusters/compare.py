"""Whether two run directories hold the same bytes, and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr

TIMES = ("seconds",)  # attributes that say how long it took


def variables(path: Path) -> dict[str, bytes]:
    """Every variable's bytes."""
    with xr.open_dataset(path, engine="h5netcdf") as data:
        return {
            str(name): str(array.values.tolist()).encode() if array.dtype == object else np.asarray(array).tobytes()
            for name, array in data.variables.items()
        }


def compare(one: Path, other: Path) -> list[str]:
    """What is not the same, in words; []: all is."""
    names = [{path.name for path in (directory / "blocks").iterdir()} for directory in (one, other)]
    told = [f"{name} is in one of them only" for name in sorted(names[0] ^ names[1])]
    told += [
        f"{name} differs"
        for name in sorted(names[0] & names[1])
        if variables(one / "blocks" / name) != variables(other / "blocks" / name)
    ]
    for directory in (one, other):
        left = [*directory.rglob("*.unfinished"), *directory.glob("checkpoints/*")]
        told += [f"{path} is left over" for path in left]
    return told


def tell(label: str, one: Path, other: Path) -> bool:
    """Print the comparison; whether all is the same."""
    told = compare(one, other)
    blocks = len(list((one / "blocks").iterdir()))
    print(f"{label}: {blocks} blocks, " + ("; ".join(told) or "all variables equal, nothing left over"), flush=True)
    return not told
