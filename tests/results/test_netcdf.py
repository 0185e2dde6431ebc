"""Files of results: what xarray reads is what was stored, and what was changed since is refused."""

from __future__ import annotations

import time

import numpy as np
import pytest
import xarray as xr

import cpdpo_jax as cp
from cpdpo_jax.common import files
from cpdpo_jax.results import netcdf


@pytest.fixture
def data():
    """Every kind of variable: texts, numbers, no values, a dimension without labels, a coordinate."""
    return xr.Dataset(
        {
            "curve": (("learner", "seed"), np.arange(6.0).reshape(2, 3), {"units": "reward, größer"}),
            "single": (("seed",), np.array([1, np.nan, np.inf], np.float32)),
            "policy": (("learner", "state"), np.zeros((2, 4))),
            "nothing": (("learner", "event"), np.zeros((2, 0))),
        },
        coords={
            "learner": ["cpdpo", "ünïform"], "seed": [4, 5, 9], "event": np.array([], str),
            "name": ("learner", ["a b", ""]),
        },
        attrs={"episodes": 100, "delta": 0.05, "rho": "solve", "margins": np.array([0.1, 0.2]), "interrupted": 0},
    )  # fmt: skip


def test_xarray_reads_what_was_written(data, tmp_path):
    (tmp_path / "a.nc").write_bytes(files.seal(netcdf.encode(data)))
    with xr.open_dataset(tmp_path / "a.nc", engine="h5netcdf") as file:
        xr.testing.assert_identical(file.load(), data)
    xr.testing.assert_identical(netcdf.read(tmp_path / "a.nc").dataset(), data)
    first = netcdf.encode(data)
    time.sleep(1.1)  # HDF5 would note the second
    assert netcdf.encode(data) == first


def test_what_xarray_wrote_is_read(data, tmp_path):
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    xr.testing.assert_identical(cp.Result.load(tmp_path / "a.nc").data, data)
    mine = data.assign(odd=("seed", [True, False, True]), scalar=3.5)  # only xarray can write them
    cp.Result(mine).save(tmp_path / "b.nc")
    xr.testing.assert_identical(cp.Result.load(tmp_path / "b.nc").data, mine)


def test_every_changed_file_is_refused_by_name(data, tmp_path):
    path, rng = tmp_path / "a.nc", np.random.default_rng(0)
    cp.Result(data).save(path)
    whole = path.read_bytes()
    for at in [len(whole) - 5, *rng.integers(0, len(whole), 100)]:
        flipped = whole[:at] + bytes([whole[at] ^ 1 << rng.integers(8)]) + whole[at + 1 :]
        for content in (flipped, whole[:at]):
            path.write_bytes(content)
            with pytest.raises(ValueError, match=r"a\.nc is (damaged|not a netCDF4 file)"):
                cp.Result.load(path)


def test_writing_and_reading_is_ten_times_faster_than_xarrays(tmp_path):
    """Measured in CPU seconds, which other load does not affect; the factor is about 10, the test requires 5."""
    data = xr.Dataset({f"v{i}": (("seed", "episode"), np.ones((8, 9)), {"units": "x"}) for i in range(40)})

    def spent(work) -> float:
        started = time.process_time()
        work()
        return time.process_time() - started

    path = tmp_path / "a.nc"
    theirs = min(spent(lambda: data.to_netcdf(path, engine="h5netcdf")) for _ in range(2))
    theirs += min(spent(lambda: xr.load_dataset(path, engine="h5netcdf")) for _ in range(2))
    ours = min(spent(lambda: cp.Result(data).save(path)) for _ in range(3))
    ours += min(spent(lambda: cp.Result.load(path)) for _ in range(3))
    assert theirs > 5 * ours
