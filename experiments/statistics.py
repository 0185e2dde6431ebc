"""Statistics over instances and seeds in the tables of the experiments, and how they are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import xarray as xr

from cpdpo_jax.results.statistics import LEVEL, bootstrap_mean, metric, t_interval

RESAMPLES = 2000


def final_values(data: xr.Dataset, name: str, learner: str | None = None, hparams: int = 0) -> np.ndarray:
    """A cumulative metric of one learner (by default the first) at the last episode, [instance, seed]."""
    at = {"learner": data.learner.values[0] if learner is None else learner}
    return metric(data, name).sel(at).isel(episode=-1, hparams=hparams).transpose("instance", "seed").values


def over_instances(
    samples: Sequence[np.ndarray],
    statistic: Callable[[np.ndarray], np.ndarray],
    paired: bool = False,
) -> tuple[float, float, float]:
    """A statistic of the logarithms of means over seeds, averaged over instances, with its 95 % interval.

    samples: k arrays [instance, seed]; statistic: [k, ..., instance] -> [..., instance]. The interval is Student's t
    over the instances, which includes the variance between seeds. A single instance gets a percentile-bootstrap
    interval over its seeds; `paired` resamples the same seeds in all samples, for common random numbers. A mean of 0
    gives NaN.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        each = statistic(np.log([sample.mean(axis=1) for sample in samples]))  # [instance]
        if len(each) > 1:
            low, high = t_interval(each)
        else:
            rng = np.random.default_rng(0)
            sizes = [sample.shape[1] for sample in samples]
            weights = [rng.multinomial(n, np.full(n, 1 / n), size=RESAMPLES) / n for n in sizes]
            drawn = [(weights[0 if paired else k] @ sample[0])[:, None] for k, sample in enumerate(samples)]
            low, high = np.quantile(statistic(np.log(drawn)), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(each.mean()), float(low), float(high)


def slope(x: Sequence[float]) -> Callable[[np.ndarray], np.ndarray]:
    """The least-squares slope of logarithms [k, ...] over log x, as a statistic."""
    log_x = np.log(np.asarray(x, float))
    line = (log_x - log_x.mean()) / ((log_x - log_x.mean()) ** 2).sum()
    return lambda logs: np.tensordot(line, logs, 1)


def format_interval(value: float, low: float = np.nan, high: float = np.nan, digits: int = 3) -> str:
    """A text such as '1.23 [1.2, 1.3]'; a dash for a value that is not finite."""
    if not np.isfinite(value):
        return "-"
    span = f" [{low:.{digits}g}, {high:.{digits}g}]" if np.isfinite([low, high]).all() else ""
    return f"{value:.{digits}g}{span}"


def format_mean(values: np.ndarray, digits: int = 3) -> str:
    """The mean of all values with its 95 % interval; several instances are averaged seed by seed."""
    by_seed = values.mean(axis=0) if values.ndim > 1 else values
    low, high = bootstrap_mean(by_seed)
    return format_interval(float(by_seed.mean()), float(low), float(high), digits)
