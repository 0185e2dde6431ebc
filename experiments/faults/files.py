"""CPU seconds to write and read blocks, alternately with xarray and with the code that a run uses."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import xarray as xr

import cpdpo_jax as cp
from cpdpo_jax.common import files
from cpdpo_jax.sweeps.store import Store
from experiments.faults.rows import ENVIRONMENT, Row

TABLE = {"learners": ["cpdpo"], "environments": [ENVIRONMENT], "episodes": 400, "seeds": 32}
ASKED = 10  # times faster


def run(quick: bool, place: Path) -> list[Row]:
    """Two rows: writing and reading."""
    count = 20 if quick else 200
    cp.run(TABLE, out=place / "run", progress=False)
    store = Store(place / "run")
    (key,) = store.blocks
    data = store.read(key).dataset()
    result, old = cp.Result(data), place / "old.nc"
    written = _turns(
        count,
        lambda: files.write(old, bytes(data.to_netcdf(engine="h5netcdf"))),
        lambda: result.save(store.result_path(key)),
    )
    read = _turns(count, lambda: xr.load_dataset(old, engine="h5netcdf"), lambda: store.read(key))
    return [_row("blocks written", count, *written), _row("blocks read", count, *read)]


def _turns(count: int, before: Callable[[], Any], now: Callable[[], Any]) -> tuple[float, float]:
    """CPU seconds of each function, called alternately `count` times; the first call is not counted."""
    spent = [0.0, 0.0]
    for turn in range(count + 1):
        for i, work in enumerate((before, now)):
            started = time.process_time()
            work()
            if turn:
                spent[i] += time.process_time() - started
    return spent[0] / count, spent[1] / count


def _row(what: str, count: int, before: float, now: float) -> Row:
    detail = f"{1e3 * before:.0f} ms of a core each by xarray, {1e3 * now:.1f} ms now: {before / now:.0f} times faster"
    return Row(what, count, int(before < ASKED * now), detail)
