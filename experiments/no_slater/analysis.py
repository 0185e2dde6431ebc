"""Metrics at each T with the exponent of the last decade, the learnt cap, and how the other learners refuse."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

import cpdpo_jax as cp
from cpdpo_jax.exact.optimum import least_multiplier_norm
from experiments import common, statistics
from experiments.common import Section
from experiments.no_slater import sweep
from experiments.no_slater.sweep import ENTRIES, ENVIRONMENTS, REFUSE, SCALES
from experiments.statistics import format_interval, format_mean

METRICS = ("strong_regret", "strong_violation")

Samples = dict[tuple[str, int, str, str], list[np.ndarray]]  # environment, key, learner, metric -> [1, seed] per T


def measured(result: cp.Result, scale: str) -> common.Values:
    """The stored values of a cell: both metrics at T and, for `cpd_oppo_free`, the cap in the last episode."""
    values, last = common.ends(result, scale), result.data.isel(learner=0, hparams=0, episode=-1)
    if "hyper_first_cap" in last:  # doubled in each phase but the first
        caps = np.minimum(last.hyper_first_cap * 2.0 ** (last.epochs - 1), last.hyper_largest_cap)
        values["cap"] = common.rounded(caps.transpose("instance", "seed").values)
    return values


def analyse(data: common.Data, scale: str) -> common.Analysis:
    """Three tables and a figure."""
    times, keys, seeds = SCALES[scale]
    samples: Samples = {}
    for environment in ENVIRONMENTS:
        for key in keys:
            for learner in ENTRIES:
                runs = [data[sweep.cell(environment, key, learner, t, seeds).name] for t in times]
                for metric in METRICS:
                    samples[environment, key, learner, metric] = [np.array(run[metric][0]) for run in runs]
    return [_growth(scale, samples), _caps(scale, data), _refusals()], {"no_slater": _figure(scale, samples)}


def _growth(scale: str, samples: Samples) -> Section:
    times, _, seeds = SCALES[scale]
    rows = [["environment", "key", "learner", "metric", *(f"T = {t:,}" for t in times), "median", "exponent"]]
    for (environment, key, learner, metric), ends in samples.items():
        slope = statistics.over_instances(ends[-2:], statistics.slope(times[-2:]))
        means = [format_mean(values, 4) for values in ends]
        median = f"{np.median(ends[-1]):.4g}"
        rows.append([environment, str(key), learner, metric.replace("_", " "), *means, median, format_interval(*slope)])
    note = (
        f"Means over {seeds} seeds, median at the largest T, and the exponent between the two largest T, "
        "with 95 % bootstrap intervals over seeds."
    )
    return Section("growth", "without a Slater point", rows, note)


def _caps(scale: str, data: common.Data) -> Section:
    times, keys, seeds = SCALES[scale]
    rows = [["environment", "key", "learner", "Lambda", "median final cap", "largest", "largest final cap / Lambda"]]
    for environment in ENVIRONMENTS:
        for key in keys:
            cmdp = cp.envs.make(environment, key=key)
            norm = float(least_multiplier_norm(cmdp, cp.solve(cmdp))[0])
            for label in (label for label in ENTRIES if label.startswith("cpd_oppo_free")):
                caps = np.array(data[sweep.cell(environment, key, label, times[-1], seeds).name]["cap"])
                shown = (norm, np.median(caps), caps.max(), caps.max() / norm)
                rows.append([environment, str(key), label, *(f"{value:.3g}" for value in shown)])
    return Section("caps", "caps of cpd_oppo_free", rows)


def _refusals() -> Section:
    rows = [["learner", "answer"]]
    for learner in REFUSE:
        try:
            cp.simulate(learner, cp.envs.make("least_cost", key=1), episodes=10, seeds=2, progress=False)
            answer = "runs"
        except ValueError as error:
            answer = str(error)
        rows.append([learner, answer])
    return Section("refusals", "how the other learners refuse least_cost", rows)


def _figure(scale: str, samples: Samples) -> Figure:
    times, keys, _ = SCALES[scale]
    figure = Figure(figsize=(common.WIDE, 4.6), layout="constrained")
    axes = figure.subplots(2, len(ENVIRONMENTS), sharey="row")
    for row, metric in zip(axes, METRICS, strict=True):
        for axis, environment in zip(row, ENVIRONMENTS, strict=True):
            for learner in ENTRIES:
                means = [[ends.mean() for ends in samples[environment, key, learner, metric]] for key in keys]
                style = common.line_style(learner.removesuffix(" (wide)"))
                if " (wide)" in learner:
                    style |= {"linestyle": ":", "markerfacecolor": "none"}
                axis.plot(times, np.maximum(means, 1e-3).T, **style)
                axis.lines[-1].set_label(learner)
            axis.set(yscale="log", title=f"{environment}: {metric.replace('_', ' ')}")
            common.episode_ticks(axis, times)
    common.legend(figure, axes[0, 0])
    return figure
