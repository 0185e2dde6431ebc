"""Statistics over instances and seeds, and how they are written."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from cpdpo_jax.results import tables
from cpdpo_jax.results.statistics import (
    bootstrap_mean,
    final_values,
    growth_exponent,
    over_instances,
    resampled_means,
    slope,
    t_interval,
)
from cpdpo_jax.results.tables import format_interval, format_mean


def test_over_instances_finds_an_exponent_and_its_interval_covers_it():
    rng = np.random.default_rng(1)
    times = (100, 1000, 10_000)
    # exponent 0.5 + a part of the instance of sd 0.05, mean over 40 of them: 0.5 +- 3 * 0.05 / sqrt(40) = 0.024
    powers = rng.normal(0.5, 0.05, 40)
    exact = [np.repeat((t**powers)[:, None], 4, axis=1) for t in times]
    point, low, high = over_instances(exact, slope(times))
    assert point == pytest.approx(powers.mean(), abs=1e-12)
    assert low < point < high
    assert high - low == pytest.approx(2 * 1.96 * powers.std() / np.sqrt(40), rel=0.15)
    same = over_instances([exact[0], exact[0]], lambda logs: logs[0] - logs[1], paired=True)
    assert same == (0.0, 0.0, 0.0)
    nothing = over_instances([np.zeros((2, 3)), np.ones((2, 3))], slope((1, 2)))
    assert not np.isfinite(nothing[0])


@pytest.mark.parametrize("n", [3, 4, 10])
def test_intervals_over_few_instances_cover_what_they_say(n):
    """2,000 data sets: the share that covers has a standard error of 0.005, 0.02 are four of them."""
    rng = np.random.default_rng(n)
    times = (1000, 10_000)
    covered = []
    for powers in rng.normal(0.5, 0.05, (2000, n)):
        luck = rng.normal(0, 0.3, (2, n, 8))
        samples = [t ** powers[:, None] * np.exp(luck[i]) for i, t in enumerate(times)]
        _, low, high = over_instances(samples, slope(times))
        covered.append(low <= 0.5 <= high)
    assert np.mean(covered) == pytest.approx(0.95, abs=0.02)
    values = rng.normal(0, 1, (2000, n))
    shares = [np.mean((low <= 0) & (high >= 0)) for low, high in (t_interval(values), bootstrap_mean(values))]
    assert shares[0] == pytest.approx(0.95, abs=0.02)
    assert shares[1] < 0.92  # the percentile bootstrap of so few: what was used before


def test_one_instance_has_an_interval_over_its_seeds():
    rng = np.random.default_rng(3)
    seeds = np.exp(rng.normal(0, 0.1, (1, 400)))
    point, low, high = over_instances([seeds], lambda logs: logs[0])
    assert low < point < high
    # of a logarithm of a mean: the standard error is about sd / mean / sqrt(n)
    assert high - low == pytest.approx(2 * 1.96 * seeds.std() / seeds.mean() / 20, rel=0.15)
    assert np.isnan(t_interval(np.ones((2, 1)))).all()


def test_last_by_hand():
    """The worst constraint is that of the largest sum, seed by seed."""
    dims = ("learner", "instance", "hparams", "seed", "constraint", "episode")
    values = np.zeros((2, 1, 2, 3, 2, 2))
    values[1, 0, 1, :, :, 1] = [[1, 2], [4, 3], [0, 0]]
    data = xr.Dataset({"strong_violation": (dims, values)}, coords={"learner": ["a", "b"]})
    np.testing.assert_array_equal(final_values(data, "strong_violation", "b", hparams=1), [[2, 4, 0]])
    np.testing.assert_array_equal(final_values(data, "strong_violation"), [[0, 0, 0]])


def test_how_a_number_with_its_interval_is_written():
    assert format_interval(1.2345, 1.2, 1.3) == "1.23 [1.2, 1.3]"
    assert format_interval(1.2345, digits=2) == "1.2"
    assert format_interval(np.nan, 1, 2) == "-"
    assert format_interval(1.2345, np.nan, 2) == format_interval(1.2345, 1, np.inf) == "1.23"
    assert format_mean(np.array([[1.0, 1.0], [2.0, 2.0]])) == "1.5 [1.5, 1.5]"  # instances differ, seeds do not
    assert format_mean(np.array([7.0])) == "7"  # one seed has no interval
    values = np.random.default_rng(0).normal(5, 1, (2, 20))
    low, high = bootstrap_mean(values.mean(axis=0))
    assert format_mean(values, 4) == f"{values.mean():.4g} [{low:.4g}, {high:.4g}]"
    assert low < values.mean() < high


def test_the_interval_is_the_quantiles_of_the_resampled_means():
    values = np.random.default_rng(0).normal(size=(3, 130, 7))  # more rows than are resampled at a time
    low, high = bootstrap_mean(values)
    np.testing.assert_allclose([low, high], np.quantile(resampled_means(values, 0), [0.025, 0.975], axis=-1))
    assert low.shape == (3, 130)
    assert bootstrap_mean(values[0, 0])[0].ndim == 0


def test_growth_along_a_run_is_that_of_the_second_half_in_log_t():
    """From sqrt(T) on, the ends included: the slope is 1/2 there and 2 before."""
    times = np.array([10, 100, 1_000, 10_000, 100_000, 1_000_000])
    values = np.where(times < 1_000, times.astype(float) ** 2, 1_000**1.5 * times**0.5)
    curves = np.broadcast_to(values, (1, 1, 1, 5, 6))
    data = xr.Dataset(
        {"strong_regret": (("learner", "instance", "hparams", "seed", "episode"), curves)},
        coords={"learner": ["a"], "instance": [0], "hparams": ["s"], "seed": np.arange(5), "episode": times},
    )
    fit = growth_exponent([data], "strong_regret")
    assert fit.exponent.item() == pytest.approx(0.5, abs=1e-9)
    assert fit.step_exponent.size == 3  # between 10^3, 10^4, 10^5 and 10^6


def powers_of(times, exponents, luck) -> xr.Dataset:
    """Curves luck * T^exponent: exponents [learner, instance, hparams], luck [seed]."""
    values = luck[:, None] * np.asarray(times, float) ** exponents[..., None, None]
    dims = ("learner", "instance", "hparams", "seed", "episode")
    coords = {dim: np.arange(n) for dim, n in zip(dims, values.shape, strict=True)} | {"episode": list(times)}
    return xr.Dataset({"strong_regret": (dims, values)}, coords=coords, attrs={"episodes": times[-1]})


def test_each_learner_instance_and_hparams_has_its_own_exponent():
    """Along a run every sample of seeds has the same exponent; across runs, with other seeds at each T, it varies."""
    exponents = 0.1 * np.arange(1.0, 13).reshape(2, 3, 2)
    luck = np.random.default_rng(0).lognormal(0, 0.2, 50)
    along = growth_exponent([powers_of([10, 100, 1000, 10_000], exponents, luck)], "strong_regret")
    for name in ("exponent", "low", "high"):
        np.testing.assert_allclose(along[name], exponents)
        np.testing.assert_allclose(along[f"step_{name}"], np.stack([exponents] * 2, axis=-1))
    assert along.step.values.tolist() == ["100-1000", "1000-10000"]
    assert along.attrs == {"metric": "strong_regret", "along_one_run": 1}
    runs = [powers_of([t], exponents, luck) for t in (1000, 10, 100)]
    across = growth_exponent(runs, "strong_regret")
    np.testing.assert_allclose(across.exponent, exponents)
    assert (across.low < exponents).all()
    assert (across.high > exponents).all()
    # the standard deviation of the slope is that of log(mean of 50) at both ends over log(100)
    deviation = np.sqrt(2) * luck.std() / luck.mean() / np.sqrt(50) / np.log(100)
    np.testing.assert_allclose(across.high - across.low, 2 * 1.96 * deviation, rtol=0.15)
    assert (across.step.values.tolist(), across.attrs["along_one_run"]) == (["10-100", "100-1000"], 0)


def test_the_least_slack_of_all_seeds_is_shown():
    dims = ("learner", "instance", "hparams", "seed", "episode", "event")
    slack = np.array([0.5, -0.25, 0.75]).reshape(1, 1, 1, 3, 1, 1)
    data = xr.Dataset(
        {"failures": (dims, (slack < 0).astype(float)), "slack": (dims, slack),
         "strong_regret": (dims[:-1], np.zeros(slack.shape[:-1]))},
        coords={"learner": ["a"], "instance": [0], "instance_name": ("instance", ["i"]), "hparams": ["s"],
                "seed": np.arange(3), "episode": [10], "event": ["bounds hold"], "quantity": []},
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "_monitored_sums", lambda *_: [])
        (line,) = [line for line in tables.monitor_table(data).splitlines() if "bounds hold" in line]
    assert line.split()[-1] == "-0.25"
    assert "1 of 3" in line


def monitored() -> xr.Dataset:
    """Two learners, the second without an analysis; three seeds, two checkpoints and two events."""
    dims = ("learner", "instance", "hparams", "seed", "episode")
    at_ends = np.array([[[[[0.0, 2], [1, 0], [3, 4]]]], [[[[np.nan] * 2] * 3]]])  # [learner, 1, 1, seed, 2]
    failures = np.stack([at_ends, np.full_like(at_ends, np.nan)], axis=-1)
    order = (dims[:3], np.array([7.0, np.nan]).reshape(2, 1, 1))
    regret = np.array([[5.0, 60], [5, 40], [5, 50]])
    return xr.Dataset(
        {"failures": ((*dims, "event"), failures), "slack": ((*dims, "event"), -failures),
         "watched_sum": ((*dims, "quantity"), np.stack([at_ends, at_ends * 10], axis=-1)),
         "watched_bound": ((*dims[:3], "episode", "quantity"),
                           np.full((2, 1, 1, 2, 2), [[9.0, np.nan], [123.4, np.nan]])),
         "strong_regret": (dims, np.broadcast_to(regret, (2, 1, 1, 3, 2))),
         "strong_violation": (dims, np.broadcast_to(regret / 8, (2, 1, 1, 3, 2))),
         "regret_order_term": order, "violation_order_term": order},
        coords={"learner": ["a", "b"], "instance": [0], "instance_name": ("instance", ["i"]), "hparams": ["s"],
                "seed": np.arange(3), "episode": [10, 20], "event": ["holds", "of another"], "quantity": ["x", "e"]},
    )  # fmt: skip


def test_the_table_of_the_monitor_by_hand():
    """At the last checkpoint: failures 2, 0 and 4 of three seeds."""
    lines = tables.monitor_table(monitored()).splitlines()
    assert [line.split() for line in lines if "holds" in line] == [
        ["a", "i", "(0)", "s", "holds", "2", "of", "3", "(0.667)", "2", "per", "seed", "-4"]
    ]
    assert not any("another" in line or line.startswith("b") for line in lines)
    sums = [line.partition(": ")[2] for line in lines if line.startswith("a, i (0), s: ")]
    assert sums[0] == "sum of x at most 4 over seeds, the theory allows 123.4"
    assert sums[1] == "sum of e at most 40 over seeds"
    assert sums[2].startswith("strong regret at most 60 over seeds; the theorem's order term")
    assert sums[3].startswith("strong violation at most 7.5 over seeds;")
    assert sums[2].endswith("is 7")
