"""Compare the variables of two run directories bit by bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr

TIMES = ("seconds",)  # attributes that hold durations


def variables(path: Path) -> dict[str, bytes]:
    """The bytes of every variable."""
    with xr.open_dataset(path, engine="h5netcdf") as data:
        return {
            str(name): str(array.values.tolist()).encode() if array.dtype == object else np.asarray(array).tobytes()
            for name, array in data.variables.items()
        }


def compare(first: Path, second: Path) -> list[str]:
    """The differences as text; [] for none."""
    names = [{path.name for path in (directory / "blocks").iterdir()} for directory in (first, second)]
    differences = [f"{name} is in one of them only" for name in sorted(names[0] ^ names[1])]
    differences += [
        f"{name} differs"
        for name in sorted(names[0] & names[1])
        if variables(first / "blocks" / name) != variables(second / "blocks" / name)
    ]
    for directory in (first, second):
        left = [*directory.rglob("*.unfinished"), *directory.glob("checkpoints/*")]
        differences += [f"{path} is left over" for path in left]
    return differences


def tell(label: str, first: Path, second: Path) -> bool:
    """Print the comparison; returns whether the runs are equal."""
    differences = compare(first, second)
    blocks = len(list((first / "blocks").iterdir()))
    print(
        f"{label}: {blocks} blocks, " + ("; ".join(differences) or "all variables equal, nothing left over"), flush=True
    )
    return not differences
