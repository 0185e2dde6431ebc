"""Statistics over seeds: the metrics of a data set, bootstrap intervals, growth exponents."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import xarray as xr

METRICS = ("strong_regret", "weak_regret", "strong_violation", "weak_violation")

RESAMPLES = 4000
LEVEL = 0.95


def bootstrap_mean(values: np.ndarray, rng_seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """95 % percentile-bootstrap interval of the mean over the last axis: [..., seeds] -> (low [...], high [...]).

    Seeds are resampled whole, so points of one curve keep their dependence. One seed has no interval: NaN.
    """
    n = values.shape[-1]
    if n < 2:
        nothing = np.full(values.shape[:-1], np.nan)
        return nothing, nothing.copy()
    means = values @ _resampling_weights(n, rng_seed).T
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=-1)
    return low, high


def _resampling_weights(n: int, rng_seed: int) -> np.ndarray:
    """How much each of n seeds weighs in each bootstrap sample, [RESAMPLES, n]; rows sum to 1."""
    return np.random.default_rng(rng_seed).multinomial(n, np.full(n, 1 / n), size=RESAMPLES) / n


def metric(data: xr.Dataset, name: str) -> xr.DataArray:
    """A cumulative metric, [learner, instance, setting, seed, episode]; violations by their worst constraint."""
    if name not in METRICS:
        raise ValueError(f"there is no metric {name!r}; choose one of {', '.join(METRICS)}.")
    values = data[name]
    return values.max("constraint", skipna=False) if "constraint" in values.dims else values


def growth_exponent(runs: list[xr.Dataset], name: str) -> xr.Dataset:
    """See `Result.growth_exponent`. exponent, low, high [learner, instance, setting] and the steps between
    successive T, [..., step].
    """
    import xarray as xr

    along = len(runs) == 1
    if along:
        curve = metric(runs[0], name).transpose("learner", "instance", "setting", "episode", "seed")
        times = curve.episode.values.astype(float)
        half = times >= np.sqrt(times[-1])
        times, samples = times[half], [curve.values[..., i, :] for i in np.flatnonzero(half)]
    else:
        runs = sorted(runs, key=lambda run: run.attrs["episodes"])
        times = np.array([float(run.attrs["episodes"]) for run in runs])
        if len(set(times)) < len(times):
            raise ValueError(f"growth across runs needs different numbers of episodes; these have {times.tolist()}.")
        ends = [metric(run, name).isel(episode=-1) for run in runs]
        samples = [end.transpose("learner", "instance", "setting", "seed").values for end in ends]
        curve = ends[0]
    weights = [_resampling_weights(s.shape[-1], 0 if along else i) for i, s in enumerate(samples)]
    with np.errstate(divide="ignore", invalid="ignore"):
        log_mean = np.log(np.stack([s.mean(axis=-1) for s in samples], axis=-1))[..., None]  # [..., T, 1]
        log_boot = np.log(np.stack([s @ w.T for s, w in zip(samples, weights, strict=True)], axis=-2))  # [..., T, R]
    x = np.log(times)
    line = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    out = {}
    dims = ("learner", "instance", "setting")
    for quantity, slope in (
        ("exponent", lambda y: np.einsum("t,...tr->...r", line, y)),
        ("step_exponent", lambda y: np.diff(y, axis=-2) / np.diff(x)[:, None]),
    ):
        with np.errstate(invalid="ignore"):  # a metric of 0 has no logarithm: its slope is NaN
            low, high = np.quantile(slope(log_boot), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=-1)
            mean = slope(log_mean)[..., 0]
        along_dims = dims if quantity == "exponent" else (*dims, "step")
        prefix = quantity.removesuffix("exponent")
        out |= {quantity: (along_dims, mean), f"{prefix}low": (along_dims, low), f"{prefix}high": (along_dims, high)}
    coords = {dim: curve[dim].values for dim in dims}
    steps = [f"{a:g}-{b:g}" for a, b in itertools.pairwise(times)]
    return xr.Dataset(out, coords=coords | {"step": steps}, attrs={"metric": name, "along_one_run": int(along)})
