"""The trade-off between regret and violation at the end of a run, with a point per learner and hparams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cpdpo_jax.results import plot_style
from cpdpo_jax.results.figures import check_metrics, title_of
from cpdpo_jax.results.panels import AxesLike, Layout, Size, label_axis, metric_unit
from cpdpo_jax.results.statistics import at_end, bootstrap_mean

if TYPE_CHECKING:
    import xarray as xr

MARK = ("color", "marker", "fillstyle", "markersize")
LINEAR = 1e-3  # an axis with zeros is linear below this fraction of the largest value


def tradeoff(
    data: xr.Dataset,
    *,
    metrics: Sequence[str] = ("strong_violation", "strong_regret"),
    axes: AxesLike = None,
    size: Size = None,
    log: bool | None = None,
    title: str | None = None,
    style: str = "screen",
) -> Figure:
    """One metric against another at T: means with 95 % intervals; a panel per instance. See `Result.plot_tradeoff`."""
    if isinstance(metrics, str) or len(metrics) != 2:
        raise ValueError(f"metrics = {metrics!r}; give two names, of the horizontal and the vertical axis.")
    check_metrics(metrics)
    layout = Layout(data.sizes["instance"], axes, size, style, (5.2, 4.0))
    with layout.text():
        drawn = list(plot_style.line_styles(data.isel(instance=[0])))
        figure, panels = layout.open([label for _, _, label in drawn])
        for i, axis in enumerate(panels):
            part = data.isel(instance=[i])
            lines = plot_style.line_styles(part)
            _scatter(
                axis,
                [(_mark(line_style, at[2]), label, _point(part, at, metrics)) for at, line_style, label in lines],
                log,
            )
            name = f"{data.instance_name.values[i]} ({data.instance.values[i]})" if len(panels) > 1 else ""
            x, y = (f"{title_of(data, metric)}, {metric_unit(data, metric)}" for metric in metrics)
            label_axis(axis, name, x, y)
        layout.close(figure, panels, len(drawn), layout.title(data, title, drawn))
    return figure


def _point(data: xr.Dataset, at: plot_style.Position, metrics: Sequence[str]) -> np.ndarray:
    """[metric, (mean, low, high)] of one line."""
    ends = [at_end(data, name).transpose("learner", "instance", "hparams", "seed").values[at] for name in metrics]
    ends = [end[np.isfinite(end)] for end in ends]
    return np.array([[end.mean(), *bootstrap_mean(end)] if len(end) else [np.nan] * 3 for end in ends])


def _mark(style: dict[str, Any], hparams: int) -> dict[str, Any]:
    """The style of a point: the learner's colour and marker, filled by hparams, and smaller when fillings repeat."""
    again, fill = divmod(hparams, len(plot_style.FILLS))
    return style | {"fillstyle": plot_style.FILLS[fill], "markersize": 1.6 * 0.65**again * style["markersize"]}


def _scatter(axis: Axes, points: list[tuple[dict[str, Any], str, np.ndarray]], log: bool | None) -> None:
    """Draw points with their intervals."""
    values = np.array([point[:, 0] for _, _, point in points])
    for k, scale in enumerate((axis.set_xscale, axis.set_yscale)):
        finite = np.abs(values[np.isfinite(values[:, k]), k])
        if log is False or not len(finite) or finite.max() == 0:
            continue
        if (values[:, k] > LINEAR * finite.max()).all():
            if log or finite.max() >= 10 * finite.min():
                scale("log")
        elif log or (values[:, k] >= 0).all():
            scale("symlog", linthresh=10 ** np.floor(np.log10(LINEAR * finite.max())))
    for style, label, point in points:
        (x, x_low, x_high), (y, y_low, y_high) = point
        errors = np.array([[[x - x_low], [x_high - x]], [[y - y_low], [y_high - y]]])
        errors = np.nan_to_num(np.maximum(errors, 0))
        axis.errorbar(
            [x], [y], xerr=errors[0], yerr=errors[1], linestyle="none", label=label,
            elinewidth=0.7 * style["linewidth"], **{name: style[name] for name in MARK},
        )  # fmt: skip
