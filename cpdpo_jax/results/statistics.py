"""Statistics over seeds and instances: the metrics of a data set, bootstrap intervals, growth exponents."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    import xarray as xr

Metric = Literal["strong_regret", "weak_regret", "strong_violation", "weak_violation"]
METRICS: tuple[Metric, ...] = ("strong_regret", "weak_regret", "strong_violation", "weak_violation")
STRONG: tuple[Metric, ...] = ("strong_regret", "strong_violation")

RESAMPLES = 4000
LEVEL = 0.95
NORMAL_QUANTILE = 1.959963984540054  # at (1 + LEVEL) / 2
CHUNK_ROWS = 256  # rows resampled at a time, to bound the memory
NORMAL_SEEDS = 1000  # with at least this many seeds the resampled mean is nearly normal


def bootstrap_mean(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """95 % percentile-bootstrap interval of the mean over the last axis: [..., seeds] -> (low [...], high [...]).

    Whole seeds are resampled, which preserves the dependence between the points of a curve. One seed gives NaN. From
    `NORMAL_SEEDS` seeds on, an expansion replaces sampling, unless the resampled mean is very skew.
    """
    values = np.ascontiguousarray(values, float)
    low, high = _cached_bootstrap(values.tobytes(), values.shape) if values.nbytes < 2**20 else _bootstrap(values)
    return low.copy(), high.copy()


@functools.lru_cache(maxsize=2048)
def _cached_bootstrap(content: bytes, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """`_bootstrap` with a cache, because a table, a figure and a page need the interval of the same curve."""
    return _bootstrap(np.frombuffer(content).reshape(shape))


def _bootstrap(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    n = values.shape[-1]
    if n < 2:
        missing = np.full(values.shape[:-1], np.nan)
        return missing, missing.copy()
    if n < NORMAL_SEEDS:
        rows = values.reshape(-1, n)
        chunks = [rows[i : i + CHUNK_ROWS] for i in range(0, len(rows), CHUNK_ROWS)]
        parts = [_interval(resampled_means(chunk, 0)) for chunk in chunks]
        low, high = np.concatenate(parts, axis=-1) if parts else np.empty((2, 0))
        return low.reshape(values.shape[:-1])[()], high.reshape(values.shape[:-1])[()]  # a number for one row
    low, high, skew = _expansion(values)
    if skew.any():
        low, high, skew = np.atleast_1d(low), np.atleast_1d(high), np.atleast_1d(skew)
        low[skew], high[skew] = _interval(resampled_means(np.atleast_2d(values)[skew], 0))
        low, high = low.reshape(values.shape[:-1]), high.reshape(values.shape[:-1])
    return low, high


def _interval(means: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the interval over the last axis, [..., R] -> [...]: `np.quantile`, but four times as fast."""
    means, ends = np.sort(means, axis=-1), []
    for level in ((1 - LEVEL) / 2, (1 + LEVEL) / 2):
        index, fraction = divmod(level * (means.shape[-1] - 1), 1)
        a, b = means[..., int(index)], means[..., int(index) + 1]
        ends.append(a + (b - a) * fraction if fraction < 0.5 else b - (b - a) * (1 - fraction))
    return ends[0], ends[1]


def _expansion(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The interval by the Cornish-Fisher expansion of the resampled mean, and whether that mean is too skew for it.

    The mean of n draws from the sample has the sample's mean, variance s^2 / n, skewness g = skewness / sqrt(n) and
    excess kurtosis k = kurtosis / n. Its quantile is mean + s / sqrt(n) * w(z) with the normal quantile z and
    w = z + g (z^2 - 1) / 6 + k (z^3 - 3 z) / 24 - g^2 (2 z^3 - 5 z) / 36. For |g| <= 0.3 the remainder is below 2 % of
    the half width, which is the sampling error of 4,000 draws.
    """
    n, centre = values.shape[-1], values.mean(axis=-1)
    deviation = values - centre[..., None]
    variance = (deviation**2).mean(axis=-1)
    safe = np.where(variance > 0, variance, 1)  # equal values have an interval of width 0
    g = (deviation**3).mean(axis=-1) / safe**1.5 / np.sqrt(n)
    k = ((deviation**4).mean(axis=-1) / safe**2 - 3) / n
    ends = [
        centre
        + np.sqrt(variance / n) * (z + g * (z**2 - 1) / 6 + k * (z**3 - 3 * z) / 24 - g**2 * (2 * z**3 - 5 * z) / 36)
        for z in (-NORMAL_QUANTILE, NORMAL_QUANTILE)
    ]
    return ends[0], ends[1], np.abs(g) > 0.3


def resampled_means(values: np.ndarray, rng_seed: int) -> np.ndarray:
    """The mean over the last axis in each bootstrap sample, [..., seeds] -> [..., RESAMPLES], in bounded memory."""
    n = values.shape[-1]
    if n < NORMAL_SEEDS:
        return values @ _resampling_weights(n, rng_seed).T
    rng, out = np.random.default_rng(rng_seed), np.empty((*values.shape[:-1], RESAMPLES))
    rows = max(1, 2**22 // n)
    for first in range(0, RESAMPLES, rows):
        drawn = rng.integers(0, n, (min(rows, RESAMPLES - first), n), dtype=np.int32)
        counts = np.stack([np.bincount(sample, minlength=n) for sample in drawn])
        out[..., first : first + rows] = values @ (counts.T / n)
    return out


@functools.lru_cache(maxsize=8)
def _resampling_weights(n: int, rng_seed: int) -> np.ndarray:
    """The weight of each of n seeds in each bootstrap sample, [RESAMPLES, n]; rows sum to 1."""
    return np.random.default_rng(rng_seed).multinomial(n, np.full(n, 1 / n), size=RESAMPLES) / n


def metric(data: xr.Dataset, name: str) -> xr.DataArray:
    """A cumulative metric, [learner, instance, hparams, seed, episode]; violations by their worst constraint."""
    if name not in METRICS:
        raise ValueError(f"there is no metric {name!r}; choose one of {', '.join(METRICS)}.")
    values = data[name]
    return values.max("constraint", skipna=False) if "constraint" in values.dims else values


def at_end(data: xr.Dataset, name: str, worst: bool = True) -> xr.DataArray:
    """A cumulative metric at T, [learner, instance, hparams, seed], or at the T of each entry of hparams.

    Violations are those of the worst constraint; worst=False keeps the dimension constraint.
    """
    values = metric(data, name) if worst else data[name]
    return values.sel(episode=data["T"]) if "T" in data.coords else values.isel(episode=-1)


def growth_exponent(runs: list[xr.Dataset], name: str) -> xr.Dataset:
    """The exponent, low and high [learner, instance, hparams], and those between successive T [..., step].

    See `Result.growth_exponent`.
    """
    import xarray as xr

    along = len(runs) == 1
    if along:
        curve = metric(runs[0], name).transpose("learner", "instance", "hparams", "episode", "seed")
        times = curve.episode.values.astype(float)
        half = times >= np.sqrt(times[-1])
        times, samples = times[half], [curve.values[..., i, :] for i in np.flatnonzero(half)]
    else:
        runs = sorted(runs, key=lambda run: run.attrs["episodes"])
        times = np.array([float(run.attrs["episodes"]) for run in runs])
        if len(set(times)) < len(times):
            raise ValueError(f"growth across runs needs different numbers of episodes; these have {times.tolist()}.")
        ends = [metric(run, name).isel(episode=-1) for run in runs]
        samples = [end.transpose("learner", "instance", "hparams", "seed").values for end in ends]
        curve = ends[0]
    if along:
        drawn = resampled_means(np.stack(samples, axis=-2), 0)  # [..., T, R]: the same seeds at every point
    else:
        drawn = np.stack([resampled_means(sample, i) for i, sample in enumerate(samples)], axis=-2)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_mean = np.log(np.stack([s.mean(axis=-1) for s in samples], axis=-1))[..., None]  # [..., T, 1]
        log_boot = np.log(drawn)
    x = np.log(times)
    line = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    out = {}
    dims = ("learner", "instance", "hparams")
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


def t_interval(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """95 % interval of the mean over the last axis by Student's t: [..., n] -> (low [...], high [...]).

    It is for few independent values (instances, environments): with 3 to 10 normal values the percentile bootstrap
    covers 74 to 89 %, Student's t 95 %. One value gives NaN.
    """
    from scipy.special import stdtrit

    n = values.shape[-1]
    mean = values.mean(axis=-1)
    if n < 2:
        return np.full_like(mean, np.nan), np.full_like(mean, np.nan)
    half = stdtrit(n - 1, (1 + LEVEL) / 2) * values.std(axis=-1, ddof=1) / np.sqrt(n)
    return mean - half, mean + half
