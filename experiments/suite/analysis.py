"""The table a practitioner looks at first, from stored results: every learner on every environment, with ranks.

All numbers are per episode, means over the T episodes of a run. Ranks (1 is best) are by the mean over seeds, among
learners that were run for the same T; `UNRANKED` ones ignore the constraints or do not learn.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import rankdata

import cpdpo_jax as cp
from cpdpo_jax.results.statistics import bootstrap_mean
from experiments import common
from experiments.common import Section
from experiments.suite import sweep
from experiments.suite.sweep import ENTRIES, UNRANKED, World

METRICS = ("strong_regret", "strong_violation")
SCORES = ("regret", "violation", "sum")
FLOOR = 1e-5  # per episode: less is shown as this, near the float32 noise of a value

Values = dict[str, dict[str, np.ndarray]]  # environment -> label -> [2, seed], regret and violation per episode


def analyse(directory: Path, scale: str) -> common.Analysis:
    """Per stage the environments' table, the mean ranks and a figure; then what the environments are."""
    results = common.load(directory, sweep.cells(scale))
    sections, figures = [], {}
    for stage, worlds in sweep.stages(scale).items():
        values: Values = {
            world.label: {
                label: np.stack([common.last(result, metric)[0] for metric in METRICS]) / world.episodes
                for label in sweep.entries(scale, stage, world)
                for result in [results[sweep.cell(stage, world, label).name]]
            }
            for world in worlds
        }
        ranks = {name: _ranks(of) for name, of in values.items()}
        sections += [_mean_ranks(stage, ranks), _table(stage, worlds, values, ranks)]
        figures[f"suite_{stage}"] = _figure(values)
    sections.append(_about(results, scale))
    return sections, figures


def _ranks(of: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """label -> [3], ranks by regret, by violation and by their sum."""
    ranked = [label for label in of if label not in UNRANKED]
    means = np.array([of[label].mean(axis=1) for label in ranked])
    scores = np.column_stack([means, means.sum(axis=1)])
    return dict(zip(ranked, rankdata(scores, axis=0), strict=True))


def _mean_ranks(stage: str, ranks: dict[str, dict[str, np.ndarray]]) -> Section:
    most = max(len(of) for of in ranks.values())
    complete = [name for name, of in ranks.items() if len(of) == most]
    rows = [["learner", *(f"mean rank by {score}" for score in SCORES)]]
    for label in ranks[complete[0]]:
        each = np.array([ranks[name][label] for name in complete])  # [environment, 3]
        low, high = bootstrap_mean(each.T)
        mean = each.mean(axis=0)
        rows.append([label, *(common.show(mean[i], low[i], high[i]) for i in range(3))])
    note = f"Over {len(complete)} environments on which all {most} were run; intervals over environments."
    return Section(f"mean ranks ({stage})", rows, note)


def _table(stage: str, worlds: list[World], values: Values, ranks: dict[str, dict[str, np.ndarray]]) -> Section:
    rows = [
        ["environment", "T", "seeds", "learner", "strong regret", "rank", "strong violation", "rank", "rank by sum"]
    ]
    for world in worlds:
        for label, of in values[world.label].items():
            rank = [f"{one:g}" for one in ranks[world.label].get(label, [])] or ["", "", ""]
            cells = [common.mean(of[0]), rank[0], common.mean(of[1]), rank[1], rank[2]]
            rows.append([world.label, f"{world.episodes:,}", str(world.seeds), label, *cells])
        missing = [x for x in ENTRIES if world.without_bonus and x in sweep.BONUS]
        rows += [[world.label, "", "", label, "not run: too large", "", "", "", ""] for label in missing]
    return Section(f"per episode ({stage})", rows, "Means over T and seeds, 95 % intervals over seeds.")


def _about(results: dict[str, cp.Result], scale: str) -> Section:
    rows = [["environment", "L x S x A, m", "OPT", "rho", "largest optimal multiplier", "tuned cap of cpdpo"]]
    for stage, world in [(stage, world) for stage, some in sweep.worlds(scale).items() for world in some]:
        data = results[sweep.cell(stage, world, "uniform").name].data
        rho, multiplier = float(data.slater_margin[0]), float(data.optimal_multipliers.max())
        layers = data.attrs["layers"]
        sizes = f"{layers} x {data.attrs['states']} x {data.attrs['actions']}, {data.sizes['constraint']}"
        cap = 0.5 * (layers + 1) / rho
        mark = " (too small)" if cap < multiplier else ""
        about = [f"{float(data.optimum[0]):.4g}", f"{rho:.3g}", f"{multiplier:.3g}", f"{cap:.3g}{mark}"]
        rows.append([world.label, sizes, *about])
    return Section("environments", rows, "Where the cap is below a multiplier, CPD-PO's violation grows as T.")


def _figure(values: Values) -> Figure:
    labels = list(dict.fromkeys(label for of in values.values() for label in of))
    figure = Figure(figsize=(common.WIDE, 1.3 + 0.32 * len(values)), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, k, title in zip(axes, (0, 1), ("strong regret", "strong violation"), strict=True):
        for i, label in enumerate(labels):
            points = [(row, of[label][k]) for row, of in enumerate(values.values()) if label in of]
            x = [max(float(one.mean()), FLOOR) for _, one in points]
            y = [row + 0.6 * (i / max(len(labels) - 1, 1) - 0.5) for row, _ in points]
            axis.plot(
                x, y, linestyle="none", color=common.PALETTE[i], marker=common.MARKS[i], label=label, markersize=3.5
            )
        axis.set(xscale="log", xlabel=f"{title} per episode ({'reward' if k == 0 else 'cost'})")
        axis.set_yticks(range(len(values)), list(values))
        axis.set_yticks(np.arange(len(values) - 1) + 0.5, minor=True)
        axis.tick_params(axis="y", which="both", length=0)
        axis.grid(visible=False, axis="y")
        axis.grid(axis="y", which="minor", alpha=0.6)
    axes[0].set_ylim(len(values) - 0.5, -0.5)
    common.legend(figure, axes[0], 4)
    return figure
