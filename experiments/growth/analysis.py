"""Exponents of growth with T, from stored results: per decade and overall, intervals over instances and seeds."""

from __future__ import annotations

import itertools

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import common, statistics
from experiments.common import Section
from experiments.growth import sweep
from experiments.growth.sweep import LEARNERS, Group
from experiments.statistics import format_interval, format_mean

METRICS = ("strong_regret", "strong_violation")
GUIDES = ((0.5, "$T^{1/2}$", ":"), (0.93, "$T^{0.93}$", "--"))

Samples = dict[tuple[str, str], dict[int, np.ndarray]]  # (learner, metric) -> T -> [instance, seed]


def analyse(data: common.Data, scale: str) -> common.Analysis:
    """A table and a figure for each group of instances, of what was run."""
    sections, figures = [], {}
    for group in sweep.groups(scale):
        samples: Samples = {}
        for learner in group.learners:
            runs = {t: data.get(sweep.cell(group, learner, t).name) for t in group.times}
            for metric in METRICS:
                ends = {t: np.array(run[metric][0]) for t, run in runs.items() if run is not None}
                if ends:
                    samples[learner, metric] = ends
        if samples:
            sections.append(_table(group, samples))
            figures[f"growth_{group.name}"] = _figure(group, samples)
    return sections, figures


def _exponent(ends: dict[int, np.ndarray], *times: int) -> str:
    """Between the T that were run, or a dash."""
    if len(times) < 2 or not all(t in ends for t in times):
        return "-"
    return format_interval(*statistics.over_instances([ends[t] for t in times], statistics.slope(times)))


def _table(group: Group, samples: Samples) -> Section:
    times = group.times
    steps = [f"{a:.0e}-{b:.0e}".replace("e+0", "e") for a, b in itertools.pairwise(times)]
    rows = [["learner", "metric", *(f"T = {t:,}" for t in times), *(f"exponent {s}" for s in steps), "overall"]]
    for (learner, metric), ends in samples.items():
        levels = [format_mean(ends[t], 4) if t in ends else "not run" for t in times]
        exponents = [_exponent(ends, a, b) for a, b in itertools.pairwise(times)]
        rows.append([learner, metric.replace("_", " "), *levels, *exponents, _exponent(ends, *ends)])
    several = len(next(iter(next(iter(samples.values())).values()))) > 1
    over = "t interval over the instances" if several else "bootstrap interval over seeds"
    note = (
        f"Means over instances and {group.seeds} seeds (bootstrap interval over seeds); exponents: mean over instances "
        f"of the slope of log metric over log T, 95 % {over}; overall: over every T that was run."
    )
    return Section(group.name, group.title, rows, note)


def _figure(group: Group, samples: Samples) -> Figure:
    figure = Figure(figsize=(common.WIDE, 3.0), layout="constrained")
    axes = figure.subplots(1, 2)
    times = np.array(group.times, float)
    for axis, metric in zip(axes, METRICS, strict=True):
        starts = []
        for i, learner in enumerate(LEARNERS):
            ends = samples.get((learner, metric), {})
            if not ends:
                continue
            level = np.array(
                [statistics.over_instances([values], lambda logs: logs[0]) for values in ends.values()]
            )  # [T, 3]
            point, low, high = np.exp(level).T
            error = np.maximum([point - low, high - point], 0)
            shifted = np.array(list(ends), float) * 1.03 ** (i - 2)
            axis.errorbar(shifted, point, yerr=error, label=learner, capsize=2, **common.line_style(learner))
            starts += [point[0]] if point[0] > 0 else []
        _guides(axis, times, min(starts, default=1.0))
        axis.set(yscale="log", title=metric.replace("_", " ") + " at T")
        common.episode_ticks(axis, group.times)
    axes[0].set_ylabel("cumulative (reward)")
    axes[1].set_ylabel("cumulative (cost)")
    common.legend(figure, axes[0], 4)
    return figure


def _guides(axis: Axes, times: np.ndarray, start: float) -> None:
    """Grey lines of the claimed slopes, below the data."""
    for power, label, dash in GUIDES:
        line = 0.5 * start * (times / times[0]) ** power
        axis.plot(times, line, color="0.5", linestyle=dash, linewidth=1, label=label, zorder=0)
