"""Strong and weak sums of all learners, per episode at the end of the run, and their curves, from stored results."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

import cpdpo_jax as cp
from experiments import common, statistics
from experiments.common import Section
from experiments.rivals import sweep
from experiments.statistics import format_interval, format_mean

METRICS = ("strong_regret", "weak_regret", "strong_violation", "weak_violation")
SHOWN = ("strong_regret", "strong_violation")
FLOOR = 1e-2  # of a curve on logarithmic axes


def measured(result: cp.Result, scale: str = "") -> common.Values:
    """Every metric at T, [seed], and the curves of two: their mean and 10 and 90 % quantiles over seeds.

    Of the comparison with the notebook, regret and violation at T: [hparams][instance][seed].
    """
    if result.data.sizes["hparams"] > 1:
        return common.ends(result, scale)
    values = {metric: statistics.final_values(result.data, metric)[0] for metric in METRICS}
    for metric in SHOWN:
        curve = result.metric(metric).isel(learner=0, instance=0, hparams=0).transpose("episode", "seed").values
        values[f"{metric}_curve"] = np.array([curve.mean(axis=1), *np.quantile(curve, [0.1, 0.9], axis=1)])
    if "infeasible" in result.data:
        values["infeasible"] = result.data.infeasible.isel(episode=-1).mean().values
    return {name: common.rounded(of) for name, of in values.items()} | {"episode": result.data.episode.values.tolist()}


def analyse(data: common.Data, scale: str) -> common.Analysis:
    """A table for each environment, one of the notebook, and one figure."""
    names = list(sweep.environments(scale))
    sections = [*(_table(name, data, scale) for name in names), _notebook(data, scale)]
    return sections, {"rivals": _figure(names, data, scale)}


def _table(name: str, data: common.Data, scale: str) -> Section:
    rows = [["learner", "T", *(metric.replace("_", " ") for metric in METRICS), "LPs without a solution"]]
    for learner in sweep.learners(scale):
        of = data[sweep.cell(scale, name, learner).name]
        episodes = of["episode"][-1]
        sums = [format_mean(np.array(of[metric]) / episodes) for metric in METRICS]
        infeasible = of["infeasible"] if learner in sweep.PROGRAMS else np.nan
        rows.append([learner, f"{episodes:,}", *sums, format_interval(infeasible)])
    note = (
        f"Sums over T divided by T; means and 95 % intervals over {sweep.SEEDS[scale]} seeds (common random numbers)."
    )
    return Section(name, name, rows, note)


def _notebook(data: common.Data, scale: str) -> Section:
    episodes, seeds = sweep.NOTEBOOK_SIZES[scale]
    rows = [["instance", "program", "strong regret", "strong violation"]]
    for name in sweep.notebooks(scale):
        for cell, labels in zip(sweep.compared(scale, name), (sweep.VARIANTS, sweep.OURS), strict=True):
            for h, label in enumerate(labels):
                ends = (np.array(data[cell.name][f"strong_{kind}"][h][0]) for kind in ("regret", "violation"))
                rows.append([name, label, *map(format_mean, ends)])
    note = (
        f"random, 5 x 5 x 3, payoffs without noise, delta = 0.1, T = {episodes:,}; means and 95 % intervals over "
        f"{seeds} seeds. `uopt_rpgpd` with the theory's constants but for what is named."
    )
    return Section("notebook", "uopt_rpgpd compared with its authors' notebook", rows, note)


def _figure(names: list[str], data: common.Data, scale: str) -> Figure:
    figure = Figure(figsize=(common.WIDE, 2.1 * len(names) + 0.9), layout="constrained")
    axes = figure.subplots(len(names), 2, squeeze=False, sharex="row")
    for row, name in zip(axes, names, strict=True):
        for axis, metric in zip(row, SHOWN, strict=True):
            for learner in sweep.learners(scale):
                of = data[sweep.cell(scale, name, learner).name]
                episode, (mean, low, high) = of["episode"], np.array(of[f"{metric}_curve"])
                if mean[-1] <= 1e-6 * episode[-1]:
                    continue  # lp_optimal: nothing but rounding
                style = common.line_style(learner) | {"marker": None}
                axis.plot(episode, np.maximum(mean, FLOOR), label=learner, **style)
                low, high = np.maximum(low, FLOOR), np.maximum(high, FLOOR)
                axis.fill_between(episode, low, high, color=style["color"], alpha=0.15, lw=0)
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
