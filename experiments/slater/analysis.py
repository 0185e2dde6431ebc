"""Strong regret and violation against the Slater margin, true or believed, from stored results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import cpdpo_jax as cp
from cpdpo_jax.results import statistics
from cpdpo_jax.results.figures import DASHES
from cpdpo_jax.results.tables import format_interval, format_mean
from experiments import common
from experiments.common import Section
from experiments.slater import sweep
from experiments.slater.sweep import LEARNERS, SCALES

METRICS = ("strong_regret", "strong_violation")

Samples = dict[tuple[str, str], list[np.ndarray]]  # (learner, metric) -> one [instance, seed] per margin or factor


def analyse(directory: Path, scale: str) -> common.Analysis:
    """Two tables and a figure."""
    results = common.load(directory, sweep.cells(scale))
    of = SCALES[scale]
    known: Samples = {}
    wrong: Samples = {}
    for learner in LEARNERS:
        for metric in METRICS:
            ends = statistics.last(results[sweep.known(scale, learner).name].data, metric)
            by_rho = ends.reshape(of.instances, len(of.rhos), of.seeds)
            known[learner, metric] = [by_rho[:, i] for i in range(len(of.rhos))]
            wrong[learner, metric] = [
                statistics.last(results[sweep.believed(scale, learner, factor).name].data, metric)
                for factor in (*of.factors, None)
            ]
    sections = [_known(scale, known), _wrong(scale, wrong), _caps(scale, results)]
    return sections, {"slater": _figure(scale, known, wrong)}


def _known(scale: str, samples: Samples) -> Section:
    of = SCALES[scale]
    rows = [["learner", "metric", *(f"rho = {rho:g}" for rho in of.rhos), "exponent of 1/rho"]]
    for (learner, metric), values in samples.items():
        exponent = statistics.over_instances(values, statistics.slope([1 / rho for rho in of.rhos]))
        rows.append(
            [learner, metric.replace("_", " "), *(format_mean(one, 4) for one in values), format_interval(*exponent)]
        )  # fmt: skip
    note = (
        f"T = {of.episodes:,}, {of.instances} draws x {of.seeds} seeds; means with 95 % intervals over seeds. "
        "Exponent: t interval over draws; the theorems allow 1 for regret and 0 for violation."
    )
    return Section("rho known; only the thresholds move", rows, note)


def _wrong(scale: str, samples: Samples) -> Section:
    of = SCALES[scale]
    columns = [*(f"x{factor:g}" for factor in of.factors), f"estimated, {of.explored:,}"]
    rows = [["learner", "metric", *columns]]
    for (learner, metric), values in samples.items():
        rows.append([learner, metric.replace("_", " "), *(format_mean(one, 4) for one in values)])
    note = f"True rho = {of.rho:g}; believed = factor x true, or estimated from that many first episodes, which count."
    return Section("rho believed to be another one", rows, note)


def _caps(scale: str, results: dict[str, cp.Result]) -> Section:
    """Where the tuned cap is below an optimal multiplier, violation must grow with T."""
    of = SCALES[scale]
    rows = [["believed rho", "cap of cpd_oppo", "instances with a larger optimal multiplier"]]
    for factor in of.factors:
        data = results[sweep.believed(scale, "cpd_oppo", factor).name].data
        cap = data.hyper_dual_cap.isel(learner=0, setting=0).values
        above = int((data.optimal_multipliers.max("constraint").values > cap).sum())
        rows.append([f"{of.rho * factor:g}", f"{cap.mean():.3g}", f"{above} of {len(cap)}"])
    known = results[sweep.known(scale, "cpd_oppo").name].data
    cap = known.hyper_dual_cap.isel(learner=0, setting=0).values.reshape(of.instances, -1)
    above = known.optimal_multipliers.max("constraint").values.reshape(of.instances, -1) > cap
    for i, rho in enumerate(of.rhos):
        rows.append([f"{rho:g} (known)", f"{cap[:, i].mean():.3g}", f"{above[:, i].sum()} of {of.instances}"])
    return Section("caps", rows)


def _figure(scale: str, known: Samples, wrong: Samples) -> Figure:
    of = SCALES[scale]
    figure = Figure(figsize=(common.WIDE, 4.6), layout="constrained")
    axes = figure.subplots(2, 2, sharey="row")
    for row, metric in zip(axes, METRICS, strict=True):
        for i, learner in enumerate(LEARNERS):
            _line(row[0], of.rhos, known[learner, metric], learner, i)
            _line(row[1], of.factors, wrong[learner, metric][:-1], learner, i)
            level = np.exp(statistics.over_instances([wrong[learner, metric][-1]], lambda logs: logs[0])[0])
            row[1].axhline(level, color=common.PALETTE[i], linewidth=0.7, linestyle=DASHES[i], alpha=0.7)
        row[0].invert_xaxis()
        row[0].set(ylabel=f"{metric.replace('_', ' ')} at T\n({'reward' if 'regret' in metric else 'cost'})")
    start = np.exp(statistics.over_instances([known["cpd_oppo", METRICS[0]][0]], lambda logs: logs[0])[0])
    rhos = np.array(of.rhos)
    if start > 0:
        axes[0, 0].plot(rhos, start * rhos[0] / rhos, color="0.5", linestyle=":", label="1/rho", zorder=0)
    axes[1, 0].set_xlabel("true rho, known (cost per episode)")
    axes[1, 1].set_xlabel(f"believed / true rho (true: {of.rho:g}); horizontal: estimated")
    common.legend(figure, axes[0, 0])
    return figure


def _line(axis: Axes, x: tuple[float, ...], samples: list[np.ndarray], label: str, i: int) -> None:
    """Geometric mean over instances with its interval."""
    logs = np.array([statistics.over_instances([values], lambda logs: logs[0]) for values in samples])
    point, low, high = np.exp(logs).T
    beside = np.array(x) * 1.04 ** (i - 1)  # error bars do not cover each other
    axis.errorbar(
        beside, point, yerr=np.maximum([point - low, high - point], 0), label=label, capsize=2, **common.look(i)
    )
    axis.set(xscale="log", yscale="log")
    axis.set_xticks(x, [f"{one:g}" for one in x])
    axis.set_xticks([], minor=True)
