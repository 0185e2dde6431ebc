"""Statistics over instances and seeds, and how they are written."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from cpdpo_jax.results.statistics import bootstrap_mean, t_interval
from experiments.statistics import final_values, format_interval, format_mean, over_instances, slope


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
