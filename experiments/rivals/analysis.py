"""Strong and weak sums of all learners, per episode at the end of the run, and their curves, from stored results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import cpdpo_jax as cp
from cpdpo_jax.results import statistics
from cpdpo_jax.results.tables import format_interval, format_mean
from experiments import common
from experiments.common import Section
from experiments.rivals import sweep

METRICS = ("strong_regret", "weak_regret", "strong_violation", "weak_violation")
SHOWN = ("strong_regret", "strong_violation")
FLOOR = 1e-2  # of a curve on logarithmic axes


def analyse(directory: Path, scale: str) -> common.Analysis:
    """A table for each environment, and one figure."""
    results = common.load(directory, sweep.cells(scale))
    names = list(sweep.environments(scale))
    sections = [_table(name, results, scale) for name in names]
    return sections, {"rivals": _figure(names, results, scale)}


def _table(name: str, results: dict[str, cp.Result], scale: str) -> Section:
    rows = [["learner", "T", *(metric.replace("_", " ") for metric in METRICS), "LPs without a solution"]]
    for learner in sweep.learners(scale):
        result = results[sweep.cell(scale, name, learner).name]
        episodes = int(result.data.episode[-1])
        sums = [format_mean(statistics.last(result.data, metric)[0] / episodes) for metric in METRICS]
        infeasible = float(result.data.infeasible.isel(episode=-1).mean()) if learner in sweep.PROGRAMS else np.nan
        rows.append([learner, f"{episodes:,}", *sums, format_interval(infeasible)])
    note = (
        f"Sums over T divided by T; means and 95 % intervals over {sweep.SEEDS[scale]} seeds, which share their luck."
    )
    return Section(name, rows, note)


def _figure(names: list[str], results: dict[str, cp.Result], scale: str) -> Figure:
    figure = Figure(figsize=(common.WIDE, 2.1 * len(names) + 0.9), layout="constrained")
    axes = figure.subplots(len(names), 2, squeeze=False, sharex="row")
    for row, name in zip(axes, names, strict=True):
        for axis, metric in zip(row, SHOWN, strict=True):
            for i, learner in enumerate(sweep.learners(scale)):
                curve = results[sweep.cell(scale, name, learner).name].metric(metric)
                curve = curve.isel(learner=0, instance=0, setting=0).transpose("episode", "seed")
                mean, low, high = curve.mean("seed").values, *np.quantile(curve.values, [0.1, 0.9], axis=1)
                if mean[-1] <= 1e-6 * curve.episode.values[-1]:
                    continue  # lp_optimal: nothing but rounding
                look = common.look(i) | {"marker": None}
                axis.plot(curve.episode, np.maximum(mean, FLOOR), label=learner, **look)
                axis.fill_between(
                    curve.episode,
                    np.maximum(low, FLOOR),
                    np.maximum(high, FLOOR),
                    color=look["color"],
                    alpha=0.15,
                    lw=0,
                )
            axis.set(xscale="log", yscale="log", title=f"{name}: {metric.replace('_', ' ')}")
        row[0].set_ylabel("cumulative (reward)")
        row[1].set_ylabel("cumulative (cost)")
    for axis in axes[-1]:
        axis.set_xlabel("episode")
    handles = {
        label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4)
    return figure
