"""Figures of a result: curves, details of multipliers and constraints, growth with T.

They are colour-blind safe and readable in black and white. An axis is logarithmic only if it can show all values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cpdpo_jax.results import plot_style, units
from cpdpo_jax.results.panels import AxesLike, Layout, Size, label_axis, line_values, metric_unit
from cpdpo_jax.results.statistics import METRICS, bootstrap_mean, growth_exponent, metric

if TYPE_CHECKING:
    import xarray as xr

TITLES = {
    "strong_regret": "strong regret",
    "weak_regret": "weak regret",
    "strong_violation": "strong violation",
    "weak_violation": "weak violation",
}


def title_of(data: xr.Dataset, name: str) -> str:
    """A metric's title; with several constraints, violations are those of the worst constraint."""
    worst = name.endswith("violation") and data.sizes.get("constraint", 1) > 1
    return TITLES[name] + (" (worst constraint)" if worst else "")


def check_metrics(metrics: Sequence[str]) -> None:
    """Raise ValueError for an unknown metric."""
    for name in metrics:
        if name not in TITLES:
            raise ValueError(f"there is no metric {name!r}; choose one of {', '.join(TITLES)}.")


def curves(
    data: xr.Dataset,
    *,
    metrics: Sequence[str] = METRICS,
    axes: AxesLike = None,
    size: Size = None,
    log: bool | None = None,
    title: str | None = None,
    style: str = "screen",
) -> Figure:
    """Metrics against episodes: mean and 95 % band over seeds; a line per learner, instance and hparams.

    See `Result.plot`. The axes have the units of `data` (`units.convert`).
    """
    check_metrics(metrics)
    layout, x = (
        Layout(len(metrics), axes, size, style, (5.6, 3.9) if len(metrics) == 1 else (4.5, 3.3)),
        data.episode.values,
    )
    with layout.text():
        drawn = list(plot_style.line_styles(data))
        figure, panels = layout.open([label for _, _, label in drawn])
        for axis, name in zip(panels, metrics, strict=True):
            samples = [line_values(metric(data, name), at) for at, _, _ in drawn]
            means = [values.mean(axis=1) for values in samples]
            label_axis(axis, title_of(data, name), "episodes", f"cumulative, {metric_unit(data, name)}")
            plot_style.set_scales(
                axis, x, [(label, mean) for (_, _, label), mean in zip(drawn, means, strict=True)], log
            )
            for (_, line_style, label), values, mean in zip(drawn, samples, means, strict=True):
                _draw_line(axis, x, mean, values, label, line_style)
        layout.close(figure, panels, len(drawn), layout.title(data, title, drawn), ends=True)
    return figure


def _draw_line(
    axis: Axes, x: np.ndarray, mean: np.ndarray, samples: np.ndarray, label: str, style: dict[str, Any]
) -> None:
    """Draw a mean at the checkpoints where it is finite, with the band of its interval."""
    reached = np.isfinite(mean) if np.isfinite(mean).any() else np.ones(len(x), bool)
    shown = plot_style.visible(axis, mean[reached])
    every = 0.12 if np.isfinite(shown).any() else None  # a fraction of the line's length needs points
    axis.plot(x[reached], shown, label=label, markevery=every, **style)
    axis.fill_between(x[reached], *bootstrap_mean(samples[reached]), color=style["color"], alpha=0.2, linewidth=0)


def details(data: xr.Dataset, *, title: str | None = None) -> Figure:
    """Strong against weak regret and violation; below them the multiplier and violation of each constraint."""
    x, m = data.episode.values, data.sizes["constraint"]
    layout = Layout(2 + 2 * m, None, None, "screen")
    layout.rows, layout.columns, layout.size = 1 + m, 2, (9.2, 3.4 * (1 + m))
    with layout.text():
        drawn = list(plot_style.line_styles(data))
        figure, panels = layout.open([label for _, _, label in drawn])
        for axis, kind in zip(panels[:2], ("regret", "violation"), strict=True):
            _strong_against_weak(axis, data, kind, drawn)
        for i in range(m):
            left, right = panels[2 + 2 * i : 4 + 2 * i]
            suffix = f" of constraint {i}" if m > 1 else ""
            cost = units.cost_unit(data, i)
            unit = f"{units.reward_unit(data)} per {cost}"
            label_axis(left, f"multiplier{suffix} (dotted: optimal)", "episodes", unit)
            label_axis(right, f"strong violation{suffix}", "episodes", f"cumulative, {cost}")
            for value in np.unique(data.optimal_multipliers.isel(constraint=i).values):
                left.axhline(value, color="0.3", linestyle=":", linewidth=1)
            violations = [
                line_values(data["strong_violation"].isel(constraint=i), at).mean(axis=1) for at, _, _ in drawn
            ]
            named = [(label, mean) for (_, _, label), mean in zip(drawn, violations, strict=True)]
            plot_style.set_scales(right, x, named, None)
            for (at, style, _), violation in zip(drawn, violations, strict=True):
                every = max(1, len(x) // 4)
                multiplier = line_values(data["multiplier"].isel(constraint=i), at).mean(axis=1)
                left.plot(x, multiplier, markevery=every, **style)
                right.plot(x, plot_style.visible(right, violation), markevery=every, **style)
        layout.close(figure, panels, len(drawn), layout.title(data, title, drawn))
    return figure


def _strong_against_weak(axis: Axes, data: xr.Dataset, kind: str, drawn: list) -> None:
    """A strong metric against its weak counterpart, and the line on which they are equal."""
    for at, style, label in drawn:
        weak, strong = (line_values(metric(data, f"{form}_{kind}"), at).mean(axis=1) for form in ("weak", "strong"))
        axis.plot(weak, strong, label=label, markevery=[len(weak) - 1], **style)
    limits = axis.get_xlim()
    low, high = max(limits[0], axis.get_ylim()[0]), min(limits[1], axis.get_ylim()[1])
    if high > low:
        axis.plot([low, high], [low, high], color="0.5", linestyle=":", linewidth=1, zorder=0)
    unit = metric_unit(data, f"strong_{kind}")
    title = f"strong against weak {kind} (dotted: equal)"
    label_axis(axis, title, f"weak {kind}, {unit}", f"strong {kind}, {unit}")


def growth(
    runs: list[xr.Dataset],
    *,
    metrics: Sequence[str] = ("strong_regret", "strong_violation"),
    axes: AxesLike = None,
    size: Size = None,
    title: str | None = None,
    style: str = "screen",
) -> Figure:
    """Metrics at the end of runs of different T, log-log, with guides of slope 1/2 and 1 from the first point."""
    check_metrics(metrics)
    runs = sorted(runs, key=lambda run: run.attrs["episodes"])
    layout = Layout(len(metrics), axes, size, style, (6.6, 4.0))
    below = layout.chosen  # each panel has a legend with its exponents, below it or at its side
    with layout.text():
        drawn = list(plot_style.line_styles(runs[0]))
        layout.chosen = True  # do not widen the figure for a common legend
        if below and not isinstance(size, tuple):
            layout.size = (layout.size[0], layout.size[1] + 0.13 * (len(drawn) + 3))
        figure, panels = layout.open([label for _, _, label in drawn])
        for axis, name in zip(panels, metrics, strict=True):
            _growth(axis, runs, name, drawn, below)
        if title:
            figure.suptitle(title, fontsize="medium")
    return figure


def _growth(axis: Axes, runs: list[xr.Dataset], name: str, drawn: list, below: bool) -> None:
    """One metric against T, with the exponents in the legend."""
    times = np.array([run.attrs["episodes"] for run in runs], float)
    ends = [metric(run, name).isel(episode=-1).transpose("learner", "instance", "hparams", "seed") for run in runs]
    fit, zero, means, maxima = growth_exponent(runs, name), [], [], {}
    lines: dict[str, Any] = {}
    for at, style, label in drawn:
        values = [end.values[at][np.isfinite(end.values[at])] for end in ends]
        if not all(len(v) and v.mean() > 0 for v in values):  # not run, or not positive
            zero.append(label)
            continue
        mean = np.array([v.mean() for v in values])
        interval = np.array([bootstrap_mean(v) for v in values]).T
        slope, low, high = (float(fit[k].values[at]) for k in ("exponent", "low", "high"))
        interval_text = f" [{low:.2f}, {high:.2f}]" if np.isfinite([low, high]).all() else ""
        lines[label] = axis.plot(times, mean, label=f"{label}: {slope:.2f}{interval_text}", **style)[0]
        axis.errorbar(times, mean, yerr=np.abs(interval - mean), capsize=3, fmt="none", ecolor=style["color"])
        means.append(mean)
        maxima[label] = mean.max()
    axis.set(xscale="log", yscale="log")
    axis.set_xticks(times, [f"{t:,.0f}" for t in times])
    title, unit = f"{title_of(runs[0], name)} at T", metric_unit(runs[0], name)
    label_axis(axis, title, "T (episodes), each run with its own constants", unit)
    axis.xaxis.minorticks_off()
    if not means:
        return
    start = max(mean[0] for mean in means)
    for slope, dash, text in ((0.5, ":", "slope 1/2"), (1.0, "--", "slope 1")):
        line = start * (times / times[0]) ** slope
        axis.plot(times, line, color="0.55", linestyle=dash, linewidth=1, zorder=0, label=text)
    top = axis.get_ylim()[1]
    bottom = max(axis.get_ylim()[0], min(mean.min() for mean in means) / 2, top / 10**plot_style.DECADES)
    axis.set_ylim(bottom, top)
    for label, end in maxima.items():
        if end < bottom:  # no exponent of a curve that is not shown, such as one of rounding errors
            lines[label].set_label("_")
    inches = axis.get_position().height * axis.get_figure(root=True).get_figheight()  # pyright: ignore[reportOptionalMemberAccess]
    lower = -0.065 * mpl.rcParams["font.size"] / inches  # below the tick labels and the axis label
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0, lower) if below else (1.01, 1)}
    heading: dict[str, Any] = {"title": "exponent and its 95 % interval", "title_fontsize": "x-small"}
    axis.legend(fontsize="x-small", frameon=False, handlelength=3.5, **heading, **place)
    hidden = [f"{label} ({end:.1g})" for label, end in maxima.items() if end < bottom]
    plot_style.note(axis, {"0 or not run": zero, "below the axis": hidden}, share=1.0 if below else 0.6)
