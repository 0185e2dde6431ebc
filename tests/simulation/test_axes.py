"""rho, delta and safety as axes: a call with lists equals the separate runs, bit by bit, under separate labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cpdpo_jax as cp
from tests.support import random_cmdp

RHOS = [0.05, 0.1, "solve"]
LABELS = ["tuned, rho=0.05", "tuned, rho=0.1", "tuned, rho=solve"]


def run(learner: Any, cmdp: Any, **options: Any) -> cp.Result:
    return cp.simulate(learner, cmdp, **{"episodes": 150, "seeds": 3, "progress": False} | options)


def instances() -> list[cp.CMDP]:
    return [random_cmdp(3, 3, 2, 2, seed=seed) for seed in (5, 6)]


def assert_has_same_curves(whole: cp.Result, label: str, alone: cp.Result) -> None:
    """`whole` contains the run with a single value under its label, bit by bit."""
    for name in alone.data.data_vars:
        first, other = (
            data[name].sel(hparams=at) if "hparams" in data[name].dims else data[name]
            for data, at in ((whole.data, label), (alone.data, alone.data.hparams.values[0]))
        )
        np.testing.assert_array_equal(first.values, other.values, err_msg=str(name))


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"monitor": True}, marks=pytest.mark.exhaustive),
        {"monitor": True, "horizon": "doubling", "dtype": "float64"},
    ],
)
def test_one_call_is_the_three_runs_bit_by_bit(options):
    learners = ["cpdpo", "cpd_oppo", "uniform"]
    whole = run(learners, instances(), rho=RHOS, **options)
    assert whole.data.hparams.values.tolist() == LABELS
    np.testing.assert_array_equal(whole.data.rho, [0.05, 0.1, np.nan])
    assert "rho" not in whole.data.attrs
    for rho, label in zip(RHOS, LABELS, strict=True):
        alone = run(learners, instances(), rho=rho, **options)
        assert_has_same_curves(whole, label, alone)
    regret = whole.data.strong_regret.sel(learner="cpd_oppo")
    assert not np.array_equal(regret.sel(hparams=LABELS[0]), regret.sel(hparams=LABELS[2]))
    played = whole.data.strong_regret.sel(learner="uniform")
    assert (played == played.isel(hparams=0)).all()  # common random numbers
    assert "tuned, rho=0.05" in whole.summary()
    assert set(whole.to_dataframe().rho.dropna()) == {0.05, 0.1}
    if "monitor" in options:
        assert "tuned, rho=0.05" in whole.monitor_table()


def test_axes_multiply_with_each_other_and_with_hyperparameters():
    cmdp = random_cmdp(3, 3, 2, 1, seed=5)
    hparams = {"learning_rate": ["x1", "x2"]}
    whole = run("cpdpo", cmdp, rho=[0.1, 0.2], delta=[0.01, 0.2], hparams=hparams)
    assert whole.data.hparams.values.tolist() == [
        f"tuned, learning_rate={rate}, rho={rho}, delta={delta}"
        for rate in ("x1", "x2") for rho in (0.1, 0.2) for delta in (0.01, 0.2)
    ]  # fmt: skip
    assert whole.data.delta.values.tolist() == [0.01, 0.2] * 4
    alone = run("cpdpo", cmdp, rho=0.2, delta=0.01, hparams={"learning_rate": "x2"})
    assert_has_same_curves(whole, "tuned, learning_rate=x2, rho=0.2, delta=0.01", alone)
    caps = whole.data.hyper_dual_cap.isel(learner=0, instance=0).values
    np.testing.assert_allclose(caps[:2] / caps[2:4], 2.0)  # (L+1)/rho


def test_safety_is_an_axis_of_the_safe_policy():
    cmdp = random_cmdp(3, 3, 2, 1, seed=3)
    whole = run(["dope", "uniform"], cmdp, safety=[0.3, 0.9], episodes=60)
    costs = whole.data.safe_cost.sel(learner="dope").isel(constraint=0, instance=0)
    assert costs.dims == ("hparams",)
    assert costs[0] > costs[1]
    assert whole.data.safe_cost.sel(learner="uniform").isnull().all()
    for safety in (0.3, 0.9):
        assert_has_same_curves(
            whole, f"tuned, safety={safety}", run(["dope", "uniform"], cmdp, safety=safety, episodes=60)
        )


@pytest.mark.parametrize("rho", [np.array([0.1, 0.2]), {"per_instance": [0.1, 0.2]}])
def test_an_array_or_table_gives_each_instance_its_own(rho):
    data = run("cpdpo", instances(), rho=rho, episodes=20).data
    assert data.hparams.values.tolist() == ["tuned"]
    assert data.believed_slater_margin.isel(learner=0, hparams=0, seed=0).values.tolist() == [0.1, 0.2]
    listed = run("cpdpo", instances(), rho=[0.1, 0.2], episodes=20).data
    assert listed.believed_slater_margin.isel(learner=0, seed=0).values.tolist() == [[0.1, 0.2], [0.1, 0.2]]


def test_lanes_of_several_values_share_a_block():
    cmdp = random_cmdp(3, 3, 2, 1, seed=5)
    first, other = (run("cpdpo", cmdp, rho=[0.05, 0.1, 0.4], seeds=7, block=block) for block in (16, 32))
    np.testing.assert_array_equal(first.data.strong_regret, other.data.strong_regret)
