"""Figures for a paper: colour-blind safe, readable in black and white."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cpdpo_jax.common.palette import COLOURS, DASHES, MARKERS
from cpdpo_jax.results.statistics import bootstrap_mean, growth_exponent, metric

if TYPE_CHECKING:
    import xarray as xr

FAR = 20  # lines whose ends differ by more than this factor are shown on logarithmic axes
TITLES = {
    "strong_regret": "strong regret",
    "weak_regret": "weak regret",
    "strong_violation": "strong violation (worst constraint)",
    "weak_violation": "weak violation (worst constraint)",
}


def curves(data: xr.Dataset, *, title: str | None = None) -> Figure:
    """The four metrics against episodes: mean and 95 % band over seeds; a line per learner, instance and setting."""
    figure, axes = plt.subplots(2, 2, figsize=(9, 6.2), sharex=True, layout="constrained")
    x = data.episode.values
    for axis, name in zip(axes.flat, TITLES, strict=True):
        for at, style, label in _lines(data):
            values = _of(metric(data, name), at)
            mean, (low, high) = values.mean(axis=1), bootstrap_mean(values)
            done = np.isfinite(mean)
            axis.plot(x[done], mean[done], label=label, markevery=0.12, **style)
            axis.fill_between(x[done], low[done], high[done], color=style["color"], alpha=0.2, linewidth=0)
        _dress(axis, TITLES[name])
        _spread(axis)
    for axis in axes[1]:
        axis.set_xlabel("episodes")
    axes[0, 0].set_ylabel("cumulative, reward")
    axes[1, 0].set_ylabel("cumulative, cost")
    _head(figure, axes[0, 0], data, title)
    return figure


def details(data: xr.Dataset, *, title: str | None = None) -> Figure:
    """Strong against weak regret and violation, multiplier traces, and the violation of each constraint."""
    figure, axes = plt.subplots(2, 2, figsize=(9, 6.6), layout="constrained")
    x, m = data.episode.values, data.sizes["constraint"]
    for at, style, label in _lines(data):
        for axis, kind in zip(axes[0], ("regret", "violation"), strict=True):
            weak, strong = (_of(metric(data, f"{one}_{kind}"), at).mean(axis=1) for one in ("weak", "strong"))
            axis.plot(weak, strong, label=label, markevery=[-1], **style)
        for axis, name in zip(axes[1], ("multiplier", "strong_violation"), strict=True):
            for i in range(m):
                mean = _of(data[name].isel(constraint=i), at).mean(axis=1)
                look = style if m == 1 else style | {"linestyle": DASHES[i % 7]}
                axis.plot(x, mean, markevery=(0.1 * i, 0.25), **look)
    for axis, kind in zip(axes[0], ("regret", "violation"), strict=True):
        limits = axis.get_xlim()
        low, high = max(limits[0], axis.get_ylim()[0]), min(limits[1], axis.get_ylim()[1])
        if high > low:
            axis.plot([low, high], [low, high], color="0.5", linestyle=":", linewidth=1, zorder=0)
        _dress(axis, f"strong against weak {kind} (dotted: equal)")
        axis.set(xlabel=f"weak {kind}", ylabel=f"strong {kind}")
    for value in np.unique(data.optimal_multipliers.values):
        axes[1, 0].axhline(value, color="0.3", linestyle=":", linewidth=1)
    dashes = "" if m == 1 else ", dashes: constraints"
    _dress(axes[1, 0], f"multipliers, mean over seeds (dotted: optimal{dashes})")
    _dress(axes[1, 1], f"strong violation by constraint{dashes}")
    axes[1, 0].set(xlabel="episodes", ylabel="reward per cost")
    axes[1, 1].set(xlabel="episodes", ylabel="cumulative, cost")
    _head(figure, axes[0, 0], data, title)
    return figure


def _lines(data: xr.Dataset):
    """Every (learner, instance, setting) that was run: its place, its look and its label."""
    i = 0
    shape = tuple(data.sizes[dim] for dim in ("learner", "instance", "setting"))
    for at in np.ndindex(shape):
        if _of(metric(data, "strong_regret"), at).size:
            style = {"color": COLOURS[i % 10], "linestyle": DASHES[i % 7], "marker": MARKERS[i % 10]}
            yield at, style | {"markersize": 4, "linewidth": 1.5}, _label(data, at)
            i += 1


def _of(values: Any, at: tuple[int, ...]) -> np.ndarray:
    """[episode, seed] of one line, without the seeds that were not run."""
    one = values.isel(learner=at[0], instance=at[1], setting=at[2]).transpose("episode", "seed").values
    return one[:, np.isfinite(one).any(axis=0)]


def _spread(axis: Axes) -> None:
    """Logarithmic axes (linear around 0 where there are negative values) if the lines' ends lie far apart."""
    curves = [np.asarray(line.get_ydata(), float) for line in axis.get_lines() if len(line.get_xdata()) > 2]  # pyright: ignore[reportArgumentType]
    ends = np.abs([curve[-1] for curve in curves if len(curve) and abs(curve[-1]) > 0])
    if len(ends) and ends.max() > FAR * ends.min():
        negative = min(curve.min() for curve in curves) < 0
        axis.set_xscale("log")
        axis.set_yscale("symlog" if negative else "log", **({"linthresh": ends.max() / 1000} if negative else {}))


def _dress(axis: Axes, title: str) -> None:
    axis.set_title(title, fontsize=10)
    axis.axhline(0, color="0.7", linewidth=0.8, zorder=0)
    axis.grid(alpha=0.3, linewidth=0.5)


def _head(figure: Figure, axis: Axes, data: xr.Dataset, title: str | None) -> None:
    """One legend above all panels, and what was averaged."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 4), fontsize=8, frameon=False)
    seeds = f"{data.sizes['seed']} seeds, mean and 95 % interval"
    words = textwrap.fill(f"{title}: {seeds}" if title else seeds, 100)
    figure.suptitle(words, fontsize=10)


def growth(runs: list[xr.Dataset], *, metrics: tuple[str, ...] = ("strong_regret", "strong_violation")) -> Figure:
    """A metric at the end of runs of different T, log-log, with guides of slope 1/2 and 1 from the first point."""
    runs = sorted(runs, key=lambda run: run.attrs["episodes"])
    times = np.array([run.attrs["episodes"] for run in runs], float)
    figure, axes = plt.subplots(1, len(metrics), figsize=(4.6 * len(metrics), 3.8), layout="constrained", squeeze=False)
    for axis, name in zip(axes[0], metrics, strict=True):
        ends = [metric(run, name).isel(episode=-1).transpose("learner", "instance", "setting", "seed") for run in runs]
        fit = growth_exponent(runs, name)
        for i, at in enumerate(np.ndindex(ends[0].shape[:3])):
            values = [end.values[at][np.isfinite(end.values[at])] for end in ends]
            if not all(len(v) and v.mean() > 0 for v in values):  # not run, or nothing that a logarithm can show
                continue
            mean = np.array([v.mean() for v in values])
            interval = np.array([bootstrap_mean(v) for v in values]).T
            slope, low, high = (float(fit[k].values[at]) for k in ("exponent", "low", "high"))
            label = f"{_label(runs[0], at)}\nexponent {slope:.2f} [{low:.2f}, {high:.2f}]"
            axis.errorbar(
                times, mean, yerr=np.abs(interval - mean), label=label, color=COLOURS[i % 10],
                linestyle=DASHES[i % 7], marker=MARKERS[i % 10], markersize=5, capsize=3, linewidth=1.4,
            )  # fmt: skip
        _guides(axis, times, max(float(end.mean()) for end in ends[:1]))
        axis.set(xscale="log", yscale="log", xlabel="T (episodes), each run with its own learning rate")
        axis.set_xticks(times, [f"{t:,.0f}" for t in times])
        axis.minorticks_off()
        axis.set_title(f"{TITLES[name]} at T", fontsize=10)
        axis.grid(alpha=0.3, linewidth=0.5, which="both")
        axis.legend(fontsize=7, frameon=False)
    return figure


def _guides(axis: Axes, times: np.ndarray, start: float) -> None:
    """Grey lines of slope 1/2 and 1 through the first point."""
    for slope, dash in ((0.5, ":"), (1.0, "--")):
        axis.plot(times, start * (times / times[0]) ** slope, color="0.55", linestyle=dash, linewidth=1, zorder=0)
        text = "slope 1/2" if slope == 0.5 else "slope 1"
        axis.annotate(text, (times[-1], start * (times[-1] / times[0]) ** slope), fontsize=7, color="0.4", ha="right")


def _label(data: xr.Dataset, at: tuple[int, ...]) -> str:
    """Learner, and instance and setting where there are several."""
    parts = [str(data.learner.values[at[0]])]
    if data.sizes["instance"] > 1:
        parts.append(f"{data.instance_name.values[at[1]]} ({data.instance.values[at[1]]})")
    if data.sizes["setting"] > 1:
        parts.append(str(data.setting.values[at[2]]))
    return ", ".join(parts)
