"""Exponents of growth with T, from stored results: per decade and overall, intervals over instances and seeds."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import common
from experiments.common import Section
from experiments.growth import sweep
from experiments.growth.sweep import LEARNERS, Group

METRICS = ("strong_regret", "strong_violation")
GUIDES = ((0.5, "$T^{1/2}$", ":"), (0.93, "$T^{0.93}$", "--"))

Samples = dict[tuple[str, str], list[np.ndarray]]  # (learner, metric) -> [T] of [instance, seed]


def analyse(directory: Path, scale: str) -> common.Analysis:
    """A table and a figure for each group of instances."""
    results = common.load(directory, sweep.cells(scale))
    sections, figures = [], {}
    for group in sweep.groups(scale):
        samples: Samples = {
            (label, metric): [
                common.last(results[sweep.cell(group, LEARNERS[label][0], t).name], metric, setting=LEARNERS[label][1])
                for t in group.times
            ]
            for label in group.labels
            for metric in METRICS
        }  # fmt: skip
        sections.append(_table(group, samples))
        figures[f"growth_{group.name}"] = _figure(group, samples)
    return sections, figures


def _table(group: Group, samples: Samples) -> Section:
    times = group.times
    steps = [f"{a:.0e}-{b:.0e}".replace("e+0", "e") for a, b in itertools.pairwise(times)]
    rows = [["learner", "metric", *(f"T = {t:,}" for t in times), *(f"exponent {s}" for s in steps), "overall"]]
    for (learner, metric), of in samples.items():
        levels = [common.mean(values, 4) for values in of]
        exponents = [
            common.over_instances(of[i : i + 2], common.slope(times[i : i + 2])) for i in range(len(times) - 1)
        ]
        exponents.append(common.over_instances(of, common.slope(times)))
        rows.append([learner, metric.replace("_", " "), *levels, *(common.show(*one) for one in exponents)])
    note = (
        f"Means over instances and {group.seeds} seeds (interval over seeds); exponents: mean over instances of the "
        "slope of log metric over log T, 95 % bootstrap interval over instances, then seeds."
    )
    return Section(group.title, rows, note)


def _figure(group: Group, samples: Samples) -> Figure:
    figure = Figure(figsize=(common.WIDE, 3.0), layout="constrained")
    axes = figure.subplots(1, 2)
    times = np.array(group.times, float)
    for axis, metric in zip(axes, METRICS, strict=True):
        starts = []
        for i, label in enumerate(LEARNERS):
            if label not in group.labels:
                continue
            of = samples[label, metric]
            level = np.array([common.over_instances([values], lambda logs: logs[0]) for values in of])  # [T, 3] logs
            point, low, high = np.exp(level).T
            error = np.maximum([point - low, high - point], 0)
            axis.errorbar(times * 1.03 ** (i - 1), point, yerr=error, label=label, capsize=2, **common.look(i))
            starts += [point[0]] if point[0] > 0 else []
        _guides(axis, times, min(starts, default=1.0))
        axis.set(yscale="log", title=metric.replace("_", " ") + " at T")
        common.episode_ticks(axis, group.times)
    axes[0].set_ylabel("cumulative (reward)")
    axes[1].set_ylabel("cumulative (cost)")
    common.legend(figure, axes[0], 3)
    return figure


def _guides(axis: Axes, times: np.ndarray, start: float) -> None:
    """Grey lines of the claimed slopes, below the data."""
    for power, label, dash in GUIDES:
        line = 0.5 * start * (times / times[0]) ** power
        axis.plot(times, line, color="0.5", linestyle=dash, linewidth=1, label=label, zorder=0)
