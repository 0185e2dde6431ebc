"""Results: tables, intervals, exponents, files."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import cpdpo_jax as cp
from cpdpo_jax.results import netcdf, statistics
from cpdpo_jax.results.statistics import bootstrap_mean
from tests.support import random_cmdp


@pytest.fixture(scope="module")
def result():
    return cp.simulate(
        ["cpdpo", "uniform"], random_cmdp(3, 3, 2, 2, seed=5), episodes=200, seeds=8, progress=False, checkpoints=20
    )


def test_the_interval_covers_the_mean_as_often_as_it_says():
    """Normal data, n = 40, 400 intervals at 95 %: the count of covering ones is binomial; percentile intervals cover
    slightly less than nominal, so the band is 95 % - 2 % +- 4 standard deviations of 1.1 %.
    """
    samples = np.random.default_rng(0).normal(3.0, 1.0, (400, 40))
    low, high = bootstrap_mean(samples)
    assert 0.89 <= ((low <= 3.0) & (high >= 3.0)).mean() <= 0.98


def test_the_interval_equals_scipys():
    from scipy.stats import bootstrap

    values = np.random.default_rng(1).exponential(size=30)
    theirs = bootstrap((values,), np.mean, method="percentile", n_resamples=20_000, rng=0).confidence_interval
    low, high = bootstrap_mean(values)
    assert (low, high) == pytest.approx((theirs.low, theirs.high), rel=0.03)


def test_many_seeds_have_the_interval_that_resampling_gives():
    """Exponential data of skewness 2, n = 1,500: ends within 5 % of the half width, where 4,000 draws leave 2 % to
    chance; and 300 intervals at 95 %, whose count of covering ones has a standard deviation of 1.3 %.
    """
    samples = np.random.default_rng(3).exponential(size=(300, 1500))
    low, high = bootstrap_mean(samples)
    drawn = np.quantile(statistics.resampled_means(samples[:5], 1), [0.025, 0.975], axis=-1)
    half = (high - low)[:5] / 2
    assert (np.abs(drawn - [low[:5], high[:5]]) < 0.1 * half).all()
    assert np.abs((drawn - [low[:5], high[:5]]) / half).mean() < 0.03
    assert 0.90 <= ((low <= 1) & (high >= 1)).mean() <= 0.99


def test_one_seed_that_outweighs_all_is_resampled():
    """The mean is then Poisson, which no expansion at the normal finds: its lower end is without that seed."""
    values = np.zeros(1200)
    values[7] = 1200.0
    low, high = bootstrap_mean(values)
    assert (low, high) == (0, 3)
    both = bootstrap_mean(np.stack([values, np.arange(1200.0)]))
    assert both[0][0] == 0
    assert both[0][1] == pytest.approx(599.5 - 1.96 * 346.4 / np.sqrt(1200), rel=1e-3)
    assert bootstrap_mean(np.ones(1200)) == (1, 1)


def test_the_summary_of_many_seeds_takes_little_time_and_memory():
    import time
    import tracemalloc

    n, dims = 100_000, ("learner", "instance", "hparams", "seed", "episode")
    values = np.random.default_rng(0).exponential(size=(2, 1, 1, n, 1))
    data = xr.Dataset(
        {name: (dims, values) for name in statistics.METRICS},
        coords={"learner": ["a", "b"], "instance": [0], "hparams": ["s"], "seed": np.arange(n), "episode": [10],
                "instance_name": ("instance", ["x"])},
        attrs={"interrupted": 0},
    )  # fmt: skip
    tracemalloc.start()
    started = time.process_time()
    assert f"{values[0].mean():.3f}" in cp.Result(data).summary()
    assert "a - b" in cp.Result(data).compare("a", "b")
    spent, (_, peak) = time.process_time() - started, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert spent < 5
    assert peak < 50e6


def _with_growth(episodes, exponent, rng):
    values = 5 * episodes**exponent * rng.lognormal(0, 0.1, (1, 1, 1, 200, 1))
    dims = ("learner", "instance", "hparams", "seed", "episode")
    data = xr.Dataset({"strong_regret": (dims, values)}, coords={"learner": ["x"], "instance": [0], "hparams": ["s"]})
    return cp.Result(data.assign_coords(seed=np.arange(200), episode=[episodes]).assign_attrs(episodes=episodes))


def test_growth_across_runs_finds_a_known_exponent():
    rng = np.random.default_rng(2)
    runs = [_with_growth(10**k, 0.7, rng) for k in (4, 6, 5)]
    fit = runs[0].growth_exponent(*runs[1:])
    assert fit.exponent.item() == pytest.approx(0.7, abs=0.02)
    assert fit.low.item() < 0.7 < fit.high.item()
    assert fit.step_exponent.values.ravel() == pytest.approx([0.7, 0.7], abs=0.03)
    with pytest.raises(ValueError, match="different numbers of episodes"):
        runs[0].growth_exponent(runs[0])


def test_growth_along_a_run_of_a_fixed_policy_is_linear(result):
    fit = result.growth_exponent(metric="strong_violation")
    assert float(fit.exponent.sel(learner="uniform").squeeze()) == pytest.approx(1, abs=1e-4)


def test_tables_say_what_the_data_say(result):
    table = result.summary()
    mean = float(result.data.strong_regret.sel(learner="uniform").isel(episode=-1).mean())
    row = next(line for line in table.splitlines() if line.startswith("uniform") and "strong_regret" in line)
    assert f"{mean:.2f}" in row
    difference = result.data.strong_regret.isel(episode=-1)
    difference = float((difference.sel(learner="cpdpo") - difference.sel(learner="uniform")).mean())
    assert f"{difference:.2f}" in result.compare("cpdpo", "uniform")
    with pytest.raises(ValueError, match="no learner 'podb'"):
        result.compare("cpdpo", "podb")
    with pytest.raises(ValueError, match="monitor=True"):
        result.monitor_table()
    with pytest.raises(ValueError, match="no metric 'regret'"):
        result.metric("regret")


def test_the_worst_constraint_is_chosen_by_its_sum(result):
    expected = result.data.weak_violation.values.max(axis=-1)
    np.testing.assert_array_equal(result.metric("weak_violation").values, expected)


def test_save_and_load_give_the_same(result, tmp_path):
    result.save(tmp_path / "run.nc")
    assert cp.Result.load(tmp_path / "run.nc").data.identical(result.data)
    assert [path.name for path in tmp_path.iterdir()] == ["run.nc"]
    with pytest.raises(ValueError, match=r"no file '.*none.nc'"):
        cp.Result.load(tmp_path / "none.nc")


def test_csv_has_a_row_per_point(result, tmp_path):
    result.to_csv(tmp_path / "run.csv")
    lines = (tmp_path / "run.csv").read_text().splitlines()
    assert len(lines) == 1 + 2 * 8 * 20
    assert "strong_regret" in lines[0]


def test_a_failed_write_leaves_the_old_file(result, tmp_path, monkeypatch):
    result.save(tmp_path / "run.nc")
    before = (tmp_path / "run.nc").read_bytes()
    monkeypatch.setattr(netcdf, "encode", lambda *a, **k: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        result.save(tmp_path / "run.nc")
    assert (tmp_path / "run.nc").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_figures_have_a_line_per_learner(result):
    import matplotlib as mpl

    mpl.use("Agg")
    figure = result.plot(title="test")
    assert len(figure.axes) == 4
    for axis in figure.axes:
        assert len([line for line in axis.lines if len(line.get_xdata()) > 2]) == 2
