"""Figures for a paper: colour-blind safe, readable in black and white, logarithmic only where that is honest."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cpdpo_jax.common.palette import COLOURS as COLOURS
from cpdpo_jax.common.palette import DASHES as DASHES
from cpdpo_jax.common.palette import MARKERS
from cpdpo_jax.results import looks, units
from cpdpo_jax.results.looks import At
from cpdpo_jax.results.statistics import METRICS, bootstrap_mean, growth_exponent, metric

if TYPE_CHECKING:
    import xarray as xr

TITLES = {
    "strong_regret": "strong regret",
    "weak_regret": "weak regret",
    "strong_violation": "strong violation (worst constraint)",
    "weak_violation": "weak violation (worst constraint)",
}


def curves(
    data: xr.Dataset,
    *,
    metrics: Sequence[str] = METRICS,
    axes: Any = None,
    size: tuple[float, float] | None = None,
    log: bool | None = None,
    title: str | None = None,
) -> Figure:
    """Metrics against episodes: mean and 95 % band over seeds; a line per learner, instance and setting.

    See `Result.plot`. The data are shown in the units they are in (`units.shown`).
    """
    for name in metrics:
        if name not in TITLES:
            raise ValueError(f"there is no metric {name!r}; choose one of {', '.join(TITLES)}.")
    drawn, x = list(looks.lines(data)), data.episode.values
    figure, panels = _panels(len(metrics), axes, size, drawn)
    for axis, name in zip(panels, metrics, strict=True):
        samples = [_of(metric(data, name), at) for at, _, _ in drawn]
        means = [one.mean(axis=1) for one in samples]
        _dress(axis, TITLES[name], f"cumulative, {_unit(data, name)}")
        axis.set_xlabel("episodes")
        looks.set_scales(axis, x, [(label, mean) for (_, _, label), mean in zip(drawn, means, strict=True)], log)
        for (_, style, label), one, mean in zip(drawn, samples, means, strict=True):
            seen = looks.visible(axis, mean)
            every = 0.12 if np.isfinite(seen).any() else None  # a line without points has no length to divide
            axis.plot(x, seen, label=label, markevery=every, **style)
            axis.fill_between(x, *bootstrap_mean(one), color=style["color"], alpha=0.2, linewidth=0)
    if axes is not None:
        _own_legend(panels[-1], len(drawn))
    elif len(panels) > 1 or not (len(drawn) > 1 and looks.label_ends(figure, panels[0])):
        looks.legend(figure, panels[0])
    if axes is None:
        _title(figure, data, title, drawn)
    return figure


def _panels(n: int, axes: Any, size: tuple[float, float] | None, drawn: list) -> tuple[Figure, list[Axes]]:
    """A figure with n panels, or the axes that were given."""
    if axes is not None:
        panels = [axis for axis in np.atleast_1d(np.asarray(axes, object)).flat if isinstance(axis, Axes)]
        if len(panels) != n:
            raise ValueError(f"axes has {len(panels)} matplotlib Axes for {n} metrics; give one for each.")
        figure = panels[0].get_figure(root=True)
        assert figure is not None
        return figure, panels
    shape = {1: (1, 1), 2: (1, 2), 3: (1, 3), 4: (2, 2)}.get(n, (-(-n // 3), 3))
    longest = max((len(label) for _, _, label in drawn), default=0)
    figure = looks.drawing(size or ((5.6, 3.9) if n == 1 else (4.5 * shape[1], 3.3 * shape[0])), len(drawn), longest)
    return figure, list(figure.subplots(*shape, squeeze=False).flat)[:n]


def _own_legend(axis: Axes, n_lines: int) -> None:
    """The legend of axes that somebody else laid out."""
    beside: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.02, 1)} if n_lines > looks.FEW else {}
    if n_lines > 1:
        axis.legend(fontsize=8, frameon=False, **beside)


def details(data: xr.Dataset, *, title: str | None = None) -> Figure:
    """Strong against weak regret and violation, multiplier traces, and the violation of each constraint."""
    drawn, x, m = list(looks.lines(data)), data.episode.values, data.sizes["constraint"]
    figure, panels = _panels(4, None, (9.2, 6.8), drawn)
    by_constraint: list[tuple[str, np.ndarray, dict[str, Any]]] = []
    for at, style, label in drawn:
        for axis, kind in zip(panels[:2], ("regret", "violation"), strict=True):
            weak, strong = (_of(metric(data, f"{one}_{kind}"), at).mean(axis=1) for one in ("weak", "strong"))
            axis.plot(weak, strong, label=label, markevery=[len(weak) - 1], **style)
        for i in range(m):
            marked: dict[str, Any] = style if m == 1 else style | {"marker": MARKERS[i % 10]}
            mean = _of(data["multiplier"].isel(constraint=i), at).mean(axis=1)
            panels[2].plot(x, mean, markevery=max(1, len(x) // 4), **marked)
            mean = _of(data["strong_violation"].isel(constraint=i), at).mean(axis=1)
            by_constraint.append((f"{label} ({i})" if m > 1 else label, mean, marked))
    for axis, kind in zip(panels[:2], ("regret", "violation"), strict=True):
        limits = axis.get_xlim()
        low, high = max(limits[0], axis.get_ylim()[0]), min(limits[1], axis.get_ylim()[1])
        if high > low:
            axis.plot([low, high], [low, high], color="0.5", linestyle=":", linewidth=1, zorder=0)
        unit = _unit(data, f"strong_{kind}")
        _dress(axis, f"strong against weak {kind} (dotted: equal)", f"strong {kind}, {unit}")
        axis.set_xlabel(f"weak {kind}, {unit}")
    for value in np.unique(data.optimal_multipliers.values):
        panels[2].axhline(value, color="0.3", linestyle=":", linewidth=1)
    marks = "" if m == 1 else "; markers: constraints"
    per = f"{units.reward_unit(data)} per {units.cost_unit(data)}"
    _dress(panels[2], f"multipliers (dotted: optimal{marks})", per)
    _dress(panels[3], f"strong violation by constraint{marks}", f"cumulative, {units.cost_unit(data)}")
    looks.set_scales(panels[3], x, [(label, mean) for label, mean, _ in by_constraint], None)
    for _, mean, marked in by_constraint:
        panels[3].plot(x, looks.visible(panels[3], mean), markevery=max(1, len(x) // 4), **marked)
    for axis in panels[2:]:
        axis.set_xlabel("episodes")
    looks.legend(figure, panels[0])
    _title(figure, data, title, drawn)
    return figure


def growth(runs: list[xr.Dataset], *, metrics: tuple[str, ...] = ("strong_regret", "strong_violation")) -> Figure:
    """A metric at the end of runs of different T, log-log, with guides of slope 1/2 and 1 from the first point."""
    runs = sorted(runs, key=lambda run: run.attrs["episodes"])
    times = np.array([run.attrs["episodes"] for run in runs], float)
    drawn = list(looks.lines(runs[0]))
    wide = 5.2 if len(drawn) <= looks.FEW else 6.6  # each panel has its own exponents in a legend beside it
    figure, panels = _panels(len(metrics), None, (wide * len(metrics), 4.0), drawn)
    for axis, name in zip(panels, metrics, strict=True):
        ends = [metric(run, name).isel(episode=-1).transpose("learner", "instance", "setting", "seed") for run in runs]
        fit, zero, means, ends_at = growth_exponent(runs, name), [], [], {}
        for at, style, label in drawn:
            values = [end.values[at][np.isfinite(end.values[at])] for end in ends]
            if not all(len(v) and v.mean() > 0 for v in values):  # not run, or nothing that a logarithm can show
                zero.append(label)
                continue
            mean = np.array([v.mean() for v in values])
            interval = np.array([bootstrap_mean(v) for v in values]).T
            slope, low, high = (float(fit[k].values[at]) for k in ("exponent", "low", "high"))
            axis.plot(times, mean, label=f"{label}: {slope:.2f} [{low:.2f}, {high:.2f}]", **style)
            axis.errorbar(times, mean, yerr=np.abs(interval - mean), capsize=3, fmt="none", ecolor=style["color"])
            means.append(mean)
            ends_at[label] = mean.max()
        axis.set(xscale="log", yscale="log", xlabel="T (episodes), each run with its own constants")
        axis.set_xticks(times, [f"{t:,.0f}" for t in times])
        axis.minorticks_off()
        _dress(axis, f"{TITLES[name]} at T", _unit(runs[0], name))
        if means:
            _guides(axis, times, max(mean[0] for mean in means))
            top = axis.get_ylim()[1]
            bottom = max(axis.get_ylim()[0], min(one.min() for one in means) / 2, top / 10**looks.DECADES)
            axis.set_ylim(bottom, top)
            few = len(drawn) <= looks.FEW
            place: dict[str, Any] = {"loc": "best"} if few else {"loc": "upper left", "bbox_to_anchor": (1.01, 1)}
            heading: dict[str, Any] = {"title": "exponent and its 95 % interval", "title_fontsize": 7}
            axis.legend(fontsize=7, frameon=False, handlelength=3.5, **heading, **place)
            below = [f"{label} ({end:.1g})" for label, end in ends_at.items() if end < bottom]
            looks.note(axis, {"0 or not run": zero, "below the axis": below})
    return figure


def _guides(axis: Axes, times: np.ndarray, start: float) -> None:
    """Grey lines of slope 1/2 and 1 through the first point."""
    for slope, dash, text in ((0.5, ":", "slope 1/2"), (1.0, "--", "slope 1")):
        line = start * (times / times[0]) ** slope
        axis.plot(times, line, color="0.55", linestyle=dash, linewidth=1, zorder=0, label=text)


def _of(values: Any, at: At) -> np.ndarray:
    """[episode, seed] of one line, without the seeds that were not run."""
    one = values.isel(learner=at[0], instance=at[1], setting=at[2]).transpose("episode", "seed").values
    return one[:, np.isfinite(one).any(axis=0)]


def _unit(data: xr.Dataset, name: str) -> str:
    return units.reward_unit(data) if name.endswith("regret") else units.cost_unit(data)


def _dress(axis: Axes, title: str, ylabel: str) -> None:
    axis.set_title(textwrap.fill(title, 54), fontsize=10)
    axis.set_ylabel(ylabel)
    axis.grid(alpha=0.3, linewidth=0.5)


def _title(figure: Figure, data: xr.Dataset, title: str | None, drawn: list) -> None:
    """What was averaged; of a single line, whose it is."""
    seeds = f"{data.sizes['seed']} seeds, mean and 95 % interval"
    parts = [title, drawn[0][2] if len(drawn) == 1 else None]
    head = ", ".join(filter(None, parts))
    figure.suptitle(textwrap.fill(f"{head}: {seeds}" if head else seeds, int(11 * figure.get_figwidth())), fontsize=10)
