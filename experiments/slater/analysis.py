"""Strong regret and violation against the Slater margin, true or believed, from stored results."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import common, statistics
from experiments.common import Section
from experiments.slater import sweep
from experiments.slater.sweep import LEARNERS, SCALES, WITH_RHO
from experiments.statistics import format_interval, format_mean

METRICS = ("strong_regret", "strong_violation")

Samples = dict[tuple[str, str], list[np.ndarray]]  # (learner, metric) -> one [instance, seed] per margin or factor


def analyse(data: common.Data, scale: str) -> common.Analysis:
    """Three tables and a figure."""
    sizes = SCALES[scale]
    known: Samples = {}
    wrong: Samples = {}
    for learner in LEARNERS:
        for metric in METRICS:
            ends = np.array(data[sweep.known(scale, learner).name][metric][0])
            by_rho = ends.reshape(sizes.instances, len(sizes.rhos), sizes.seeds)
            known[learner, metric] = [by_rho[:, i] for i in range(len(sizes.rhos))]
            if learner in WITH_RHO:
                misspecified, estimated = (
                    data[cell(scale, learner).name][metric] for cell in (sweep.believed, sweep.estimated)
                )
                wrong[learner, metric] = [np.array(values) for values in (*misspecified, estimated[0])]
    sections = [_known(scale, known), _wrong(scale, wrong), _caps(scale, data)]
    return sections, {"slater": _figure(scale, known, wrong)}


def _known(scale: str, samples: Samples) -> Section:
    sizes = SCALES[scale]
    rows = [["learner", "metric", *(f"rho = {rho:g}" for rho in sizes.rhos), "exponent of 1/rho"]]
    for (learner, metric), values in samples.items():
        exponent = statistics.over_instances(values, statistics.slope([1 / rho for rho in sizes.rhos]))
        rows.append(
            [learner, metric.replace("_", " "), *(format_mean(ends, 4) for ends in values), format_interval(*exponent)]
        )  # fmt: skip
    note = (
        f"T = {sizes.episodes:,}, {sizes.instances} draws x {sizes.seeds} seeds; means with 95 % intervals over seeds. "
        "Exponent: t interval over draws; the theorems allow 1 for regret and 0 for violation."
    )
    return Section("known", "rho known; only the thresholds move", rows, note)


def _wrong(scale: str, samples: Samples) -> Section:
    sizes = SCALES[scale]
    columns = [*(f"x{factor:g}" for factor in sizes.factors), f"estimated, {sizes.explored:,}"]
    rows = [["learner", "metric", *columns]]
    for (learner, metric), values in samples.items():
        rows.append([learner, metric.replace("_", " "), *(format_mean(ends, 4) for ends in values)])
    note = (
        f"True rho = {sizes.rho:g}; believed = factor x true, or estimated from the first {sizes.explored:,} episodes, "
        "which are included in the sums."
    )
    return Section("believed", "misspecified or estimated rho", rows, note)


def _caps(scale: str, data: common.Data) -> Section:
    """Where the tuned cap is below an optimal multiplier, violation must grow with T."""
    sizes = SCALES[scale]
    rows = [["believed rho", "cap of cpd_oppo", "instances with a larger optimal multiplier"]]
    believed, known = (data[cell(scale, "cpd_oppo").name] for cell in (sweep.believed, sweep.known))
    for factor, cap in zip(sizes.factors, np.array(believed["cap"]), strict=True):
        above = int((np.array(believed["multiplier"]) > cap).sum())
        rows.append([f"{sizes.rho * factor:g}", f"{cap.mean():.3g}", f"{above} of {len(cap)}"])
    cap, multiplier = (np.reshape(values, (sizes.instances, -1)) for values in (known["cap"][0], known["multiplier"]))
    above = multiplier > cap
    for i, rho in enumerate(sizes.rhos):
        rows.append([f"{rho:g} (known)", f"{cap[:, i].mean():.3g}", f"{above[:, i].sum()} of {sizes.instances}"])
    return Section("caps", "caps", rows)


def _figure(scale: str, known: Samples, wrong: Samples) -> Figure:
    sizes = SCALES[scale]
    figure = Figure(figsize=(common.WIDE, 4.6), layout="constrained")
    axes = figure.subplots(2, 2, sharey="row")
    for row, metric in zip(axes, METRICS, strict=True):
        for i, learner in enumerate(LEARNERS):
            _line(row[0], sizes.rhos, known[learner, metric], learner, i)
            if learner not in WITH_RHO:
                continue
            _line(row[1], sizes.factors, wrong[learner, metric][:-1], learner, i)
            level = np.exp(statistics.over_instances([wrong[learner, metric][-1]], lambda logs: logs[0])[0])
            row[1].axhline(level, linewidth=0.7, alpha=0.7, **common.line_style(learner) | {"marker": None})
        row[0].invert_xaxis()
        row[0].set(ylabel=f"{metric.replace('_', ' ')} at T\n({'reward' if 'regret' in metric else 'cost'})")
    start = np.exp(statistics.over_instances([known["cpd_oppo", METRICS[0]][0]], lambda logs: logs[0])[0])
    rhos = np.array(sizes.rhos)
    if start > 0:
        axes[0, 0].plot(rhos, start * rhos[0] / rhos, color="0.5", linestyle=":", label="1/rho", zorder=0)
    axes[1, 0].set_xlabel("true rho, known (cost per episode)")
    axes[1, 1].set_xlabel(f"believed / true rho (true: {sizes.rho:g}); horizontal: estimated")
    common.legend(figure, axes[0, 0])
    return figure


def _line(axis: Axes, x: tuple[float, ...], samples: list[np.ndarray], learner: str, i: int) -> None:
    """Geometric mean over instances with its interval."""
    logs = np.array([statistics.over_instances([values], lambda logs: logs[0]) for values in samples])
    point, low, high = np.exp(logs).T
    shifted = np.array(x) * 1.04 ** (i - 1)  # so that error bars do not overlap
    error = np.maximum([point - low, high - point], 0)
    axis.errorbar(shifted, point, yerr=error, label=learner, capsize=2, **common.line_style(learner))
    axis.set(xscale="log", yscale="log")
    axis.set_xticks(x, [f"{value:g}" for value in x])
    axis.set_xticks([], minor=True)
