"""`plot_growth`: metrics at T against T, over runs of different T."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cpdpo_jax.results import units as unit
from cpdpo_jax.results.copies import without_copies
from cpdpo_jax.results.result import Result, as_tuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from cpdpo_jax.results.panels import AxesLike, Size, Style
    from cpdpo_jax.results.statistics import Metric
    from cpdpo_jax.results.units import UnitsName


def plot_growth(
    results: Sequence[Result],
    *,
    metrics: Metric | Sequence[Metric] = ("strong_regret", "strong_violation"),
    axes: AxesLike = None,
    size: Size = None,
    title: str | None = None,
    units: UnitsName = "source",
    style: Style = "screen",
) -> Figure:
    """Plot metrics at T against T on log-log axes, with fitted exponents and guides of slope 1/2 and 1.

    `results` differ only in T, like those of one environment in `cp.load_run`. The options are those of `Result.plot`.
    """
    from cpdpo_jax.results.figures import growth

    if not isinstance(results, Sequence) or not all(hasattr(result, "data") for result in results):
        raise ValueError(f"results is a {type(results).__name__}; give a list of results of different T.")
    if len(results) < 2:
        raise ValueError(f"results has {len(results)} runs; give at least two of different T.")
    runs = [without_copies(unit.convert(result.data, units)) for result in results]
    return growth(runs, metrics=as_tuple(metrics), axes=axes, size=size, title=title, style=style)
