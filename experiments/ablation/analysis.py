"""What each part of CPD-OPPO does, from stored results: ratios to the tuned preset, with common random numbers.

A ratio is the geometric mean over instances of (mean over seeds) / (mean over seeds of "tuned"); its interval is
Student's t over the instances; numerator and denominator use the same seeds.
"""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from experiments import common, statistics
from experiments.ablation import sweep
from experiments.common import Section
from experiments.statistics import format_interval

METRICS = ("strong_regret", "strong_violation")

Ratios = dict[tuple[str, str], np.ndarray]  # variant -> [metric, 3], ratio and its interval


def analyse(data: common.Data, scale: str) -> common.Analysis:
    """A table and a figure for each number of constraints."""
    sections, figures = [], {}
    for m in sweep.CONSTRAINTS[scale]:
        samples = {
            (part, how): [np.array(data[name][metric][i]) for metric in METRICS]
            for kind in sweep.KINDS
            for name in [sweep.cell(scale, m, kind).name]
            for i, (part, how, _) in enumerate(sweep.variants(scale, kind))
        }
        ratios = {name: _ratios(ends, samples["tuned", ""]) for name, ends in samples.items()}
        options = sweep.cell(scale, m, "choice").options
        sections.append(_table(m, samples, ratios, options))
        figures[f"ablation_{m}"] = _figure(ratios)
    return sections, figures


def _ratios(ends: list[np.ndarray], tuned: list[np.ndarray]) -> np.ndarray:
    log_ratios = [
        statistics.over_instances([values, base], lambda logs: logs[0] - logs[1], paired=True)
        for values, base in zip(ends, tuned, strict=True)
    ]
    return np.exp(log_ratios)


def _table(m: int, samples: dict[tuple[str, str], list[np.ndarray]], ratios: Ratios, options: dict) -> Section:
    rows = [["changed", "to", "strong regret", "regret / tuned's", "strong violation", "violation / tuned's"]]
    for (part, how), ends in samples.items():
        cells = [cell for k in range(2) for cell in (f"{ends[k].mean():.4g}", format_interval(*ratios[part, how][k]))]
        rows.append([part, how, *cells])
    n = len(samples["tuned", ""][0])
    note = (
        f"T = {options['episodes']:,}, {n} instances x {options['seeds']} seeds; ratios with 95 % t intervals over "
        "the instances."
    )
    return Section(f"constraints_{m}", f"{m} constraint(s)", rows, note)


def _figure(ratios: Ratios) -> Figure:
    names = [name for name in ratios if name != ("tuned", "")]
    figure = Figure(figsize=(common.WIDE, 0.9 + 0.19 * len(names)), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for k, axis in enumerate(axes):
        _dots(axis, np.array([ratios[name][k] for name in names]))
        axis.set_xlabel(f"{METRICS[k].replace('_', ' ')} / tuned's")
    axes[0].set_yticks(range(len(names)), [", ".join(part for part in name if part) for name in names])
    axes[0].set_ylim(len(names) - 0.4, -0.6)
    return figure


def _dots(axis: Axes, values: np.ndarray) -> None:
    """Ratios [variant, 3] as dots with intervals; ratios of 0 or without an interval are left out."""
    colour = common.line_style("cpd_oppo")["color"]
    for row, (ratio, low, high) in enumerate(values):
        if np.isfinite([ratio, low, high]).all() and low > 0:
            axis.plot([low, high], [row, row], color=colour, linewidth=1.5)
            axis.plot(ratio, row, "o", color=colour)
    axis.axvline(1, color="0.3", linewidth=0.8)
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=8))
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter(NullFormatter())
