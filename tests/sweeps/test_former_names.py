"""What was called `setting` and `settings` until 0.4: stored runs load and resume, keys of tables work and say so."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.common import files
from cpdpo_jax.results import netcdf
from cpdpo_jax.sweeps import config as configuration
from cpdpo_jax.sweeps import config_text, records
from cpdpo_jax.sweeps.store import Store

TABLE = {"learners": ["uniform"], "environments": ["factored"], "episodes": 20, "seeds": 2, "checkpoints": 2}
HPARAMS = ["tuned", "theory"]


def with_former_names(store: Store) -> None:
    """Rewrite a run directory as version 0.4 wrote it."""
    blocks = json.loads((store.path / "blocks.json").read_text())["blocks"]
    for block in blocks.values():
        block["setting"] = block.pop("hparams")
    records.write_json(store.path / "blocks.json", {"blocks": blocks})
    path = store.path / "config.toml"
    text = config_text.to_toml(store.config.table()).replace("\nhparams = ", "\nsettings = ")
    path.write_text(f"{text}{records._LAST_LINE}{hashlib.sha256(text.encode()).hexdigest()}\n")
    for path in (store.path / "blocks").glob("*.nc"):
        data = cp.Result.load(path).data.rename(hparams="setting")
        files.write(path, files.seal(netcdf.encode(data)))


def test_a_run_stored_under_former_names_loads_and_resumes(tmp_path):
    before = cp.run(TABLE | {"hparams": HPARAMS}, tmp_path, progress=False)
    store = Store(tmp_path)
    keys = set(store.blocks)
    with_former_names(store)
    assert '"setting"' in (tmp_path / "blocks.json").read_text()
    assert b"setting" in next((tmp_path / "blocks").glob("*.nc")).read_bytes()
    (loaded,) = cp.load_run(tmp_path)
    assert store.config.hparams == HPARAMS
    assert loaded.result.data.hparams.values.tolist() == HPARAMS
    assert store.config.hparams == HPARAMS
    assert loaded.result.data.drop_attrs().equals(before[0].result.data.drop_attrs())
    next((tmp_path / "blocks").glob("*.nc")).unlink()
    (resumed,) = cp.run(TABLE | {"hparams": HPARAMS}, tmp_path, progress=False)
    assert set(Store(tmp_path).blocks) == keys
    np.testing.assert_array_equal(resumed.result.data.strong_regret, before[0].result.data.strong_regret)


def test_the_former_key_of_a_table_works_and_says_so():
    with pytest.warns(DeprecationWarning, match="the key 'settings' is deprecated and will be removed; use 'hparams'"):
        config = configuration.build(TABLE | {"settings": HPARAMS})
    assert config.hparams == HPARAMS
    with pytest.raises(ValueError, match="both 'hparams' and its former name 'settings'"):
        configuration.build(TABLE | {"settings": HPARAMS, "hparams": HPARAMS})


def test_a_result_saved_under_former_names_loads(tmp_path):
    result = cp.simulate("uniform", "factored", episodes=5, seeds=1, hparams=HPARAMS, progress=False)
    former = result.data.rename(hparams="setting")
    files.write(tmp_path / "ours.nc", files.seal(netcdf.encode(former)))
    former.to_netcdf(tmp_path / "of_xarray.nc", engine="h5netcdf")
    for name in ("ours", "of_xarray"):
        data = cp.Result.load(tmp_path / f"{name}.nc").data
        assert data.hparams.values.tolist() == HPARAMS
        assert "setting" not in data.dims
