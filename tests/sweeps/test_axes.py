"""A sweep with a list of rho: one labelled entry of hparams per value, resumed and extended like any other."""

from __future__ import annotations

import json

import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax import cli
from cpdpo_jax.simulation import blocks
from cpdpo_jax.sweeps import report_data
from cpdpo_jax.sweeps.load import rows
from tests.sweeps.test_packing import run

TOML = """
learners = ["cpdpo", "uniform"]
environments = ["random:layers=2,states=2,actions=2,constraints=1,rho=0.1"]
episodes = 100
seeds = 3
monitor = true
rho = [0.05, "solve"]
"""


@pytest.fixture(scope="module")
def cmdp() -> cp.CMDP:
    return cp.envs.make("random", layers=2, states=2, actions=2, constraints=1, rho=0.1)


def test_a_file_with_several_rho_is_the_separate_runs(cmdp, tmp_path, capsys):
    (tmp_path / "a.toml").write_text(TOML)
    out = tmp_path / "a"
    assert cli.main(["run", str(tmp_path / "a.toml"), "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ran"] == 4
    (table,) = cp.load_run(out)
    data = table.result.data
    assert data.hparams.values.tolist() == ["tuned, rho=0.05", "tuned, rho=solve"]
    np.testing.assert_array_equal(data.rho, [0.05, np.nan])
    assert "(rho" not in table.environment
    for rho in (0.05, "solve"):
        alone = cp.simulate(["cpdpo", "uniform"], cmdp, episodes=100, seeds=3, rho=rho, block=32, progress=False)
        for name in alone.data.data_vars:
            whole = data[name].sel(hparams=f"tuned, rho={rho}") if "hparams" in data[name].dims else data[name]
            expected = alone.data[name].squeeze("hparams") if "hparams" in alone.data[name].dims else alone.data[name]
            np.testing.assert_array_equal(whole.values, expected.values, err_msg=str(name))
    assert data.failures.sel(learner="cpdpo").notnull().all()
    assert cli.main(["report", str(out), "--no-figures", "--csv"]) == 0
    assert report_data.payload([table], rows([table]))["hparams"] == ["rho=0.05", "rho=solve"]  # all are "tuned"
    written = next(out.glob("**/*.csv")).read_text()
    assert "rho" in written.splitlines()[0].split(",")
    capsys.readouterr()
    assert cli.main(["run", str(out / "config.toml"), "--out", str(out), "--json"]) == 0  # written as it was read
    assert json.loads(capsys.readouterr().out)["ran"] == 0


def test_more_values_run_new_blocks_alone_and_a_stopped_run_names_its_rho(cmdp, tmp_path, capsys, monkeypatch):
    environment = "random:layers=2,states=2,actions=2,constraints=1,rho=0.1"
    table = {"learners": ["cpdpo"], "environments": [environment], "episodes": 600, "seeds": 2, "rho": [0.05]}
    cp.run(table, out=tmp_path / "a", progress=False)
    more = table | {"rho": [0.05, 0.1]}
    with monkeypatch.context() as patched:
        patched.setattr(blocks, "CALL_SECONDS", 0.0)  # calls of few episodes, so that a stop comes in the middle
        assert run(more, tmp_path / "a", packed=True, stop_after=2) == [2]  # the lanes of rho = 0.1 alone
    assert cli.main(["status", str(tmp_path / "a")]) == 0
    output = capsys.readouterr().out
    assert "1 of 2 blocks finished, 1 started" in output
    assert "tuned, rho=0.1, seeds 0-1" in output
    assert cli.main(["resume", str(tmp_path / "a")]) == 0
    ((_, _, result),) = cp.load_run(tmp_path / "a")
    assert result.data.rho.values.tolist() == [0.05, 0.1]
    same = cp.simulate("cpdpo", cmdp, episodes=600, seeds=2, rho=[0.05, 0.1], block=32, progress=False)
    np.testing.assert_array_equal(result.data.strong_regret, same.data.strong_regret)
    with pytest.raises(ValueError, match="holds a run of another configuration"):
        cp.run(table | {"rho": 0.05}, out=tmp_path / "a", progress=False)  # one value is no axis


def test_per_instance_values_survive_the_file(tmp_path):
    environment = "random:layers=2,states=2,actions=2,constraints=1,rho=0.1,instances=2"
    table = {"learners": ["cpdpo"], "environments": [environment], "episodes": 20, "seeds": 1}
    cp.run(table | {"rho": {"per_instance": [0.1, 0.2]}}, out=tmp_path / "a", progress=False)
    ((_, _, result),) = cp.run(tmp_path / "a" / "config.toml", out=tmp_path / "a", progress=False)
    assert result.data.believed_slater_margin.values.ravel().tolist() == [0.1, 0.2]
