"""The table a practitioner looks at first, from stored results: every learner on every environment, with ranks.

All numbers are per episode, means over the T episodes of a run. Ranks (1 is best) are by the mean over seeds, among
learners that were run for the same T without extra knowledge; `UNRANKED` ones ignore the constraints or do not learn.
Mean ranks are over environments on which all of the ranked were run; `ghosh` is for one constraint only. Three of the
environments are of the families that the presets were tuned on: ranks are given without them too.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import rankdata

import cpdpo_jax as cp
from cpdpo_jax.results import statistics
from cpdpo_jax.results.tables import format_interval, format_mean
from experiments import common
from experiments.common import Section
from experiments.suite import sweep
from experiments.suite.sweep import SAFE, TUNED_ON, UNRANKED, World

METRICS = ("strong_regret", "strong_violation")
SCORES = ("regret", "violation", "sum")
FLOOR = 1e-5  # per episode: less is shown as this, near the float32 noise of a value

Values = dict[str, dict[str, np.ndarray]]  # environment -> label -> [2, seed], regret and violation per episode


def analyse(directory: Path, scale: str) -> common.Analysis:
    """Of what was run, per stage the environments' table, the mean ranks and a figure; then what environments are."""
    results = common.load_finished(directory, sweep.cells(scale))
    sections, figures = [], {}
    for stage, worlds in sweep.stages(scale).items():
        values: Values = {}
        for world in worlds:
            runs = {
                label: results.get(sweep.cell(stage, world, label).name) for label in sweep.entries(scale, stage, world)
            }
            found = {
                label: np.stack([statistics.last(run.data, metric)[0] for metric in METRICS]) / world.episodes
                for label, run in runs.items()
                if run is not None
            }
            if found:
                values[world.label] = found
        if not values:
            continue
        sections += [*_mean_ranks(stage, values), _table(stage, worlds, values)]
        figures[f"suite_{stage}"] = _figure(values)
    sections.append(_about(results, scale))
    return sections, figures


def _ranked(of: dict[str, np.ndarray]) -> list[str]:
    return [label for label in of if label not in (*UNRANKED, *SAFE)]


def _ranks(of: dict[str, np.ndarray], labels: list[str]) -> dict[str, np.ndarray]:
    """label -> [3], ranks by regret, by violation and by their sum."""
    means = np.array([of[label].mean(axis=1) for label in labels])
    scores = np.column_stack([means, means.sum(axis=1)])
    return dict(zip(labels, rankdata(scores, axis=0), strict=True))


def _mean_ranks(stage: str, values: Values) -> list[Section]:
    """Of the learners run on all environments; of all learners, over those on which all were run; each with and
    without the environments of the families that the presets were tuned on.
    """
    labels = list(dict.fromkeys(label for of in values.values() for label in _ranked(of)))
    everywhere = [label for label in labels if all(label in of for of in values.values())]
    complete = [name for name, of in values.items() if all(label in of for label in labels)]
    sections = []
    for some, names in ((everywhere, list(values)), (labels, complete)):
        of_others = [name for name in names if name not in TUNED_ON]
        for over, kind in ((names, ""), (of_others, ", without the tuning families")):
            if len(some) > 1 and len(over) > 1:
                ranks = {name: _ranks(values[name], some) for name in over}
                sections.append(_rank_table(f"mean ranks of {len(some)} ({stage}{kind})", some, ranks))
        if everywhere == labels:
            break
    return sections


def _rank_table(title: str, labels: list[str], ranks: dict[str, dict[str, np.ndarray]]) -> Section:
    rows = [["learner", *(f"mean rank by {score}" for score in SCORES)]]
    for label in labels:
        each = np.array([of[label] for of in ranks.values()])  # [environment, 3]
        low, high = statistics.t_interval(each.T)
        rows.append([label, *(format_interval(*one) for one in zip(each.mean(axis=0), low, high, strict=True))])
    note = f"Over {', '.join(ranks)}; 95 % t intervals over these {len(ranks)} environments."
    return Section(title, rows, note)


def _table(stage: str, worlds: list[World], values: Values) -> Section:
    rows = [
        ["environment", "T", "seeds", "learner", "strong regret", "rank", "strong violation", "rank", "rank by sum"]
    ]
    for world in (world for world in worlds if world.label in values):
        ranks = _ranks(values[world.label], _ranked(values[world.label]))
        name = world.label + (" (tuning family)" if world.label in TUNED_ON else "")
        for label, of in values[world.label].items():
            rank = [f"{one:g}" for one in ranks.get(label, [])] or ["", "", ""]
            cells = [format_mean(of[0]), rank[0], format_mean(of[1]), rank[1], rank[2]]
            rows.append([name, f"{world.episodes:,}", str(world.seeds), label, *cells])
    return Section(f"per episode ({stage})", rows, "Means over T and seeds, 95 % intervals over seeds.")


def _about(results: dict[str, cp.Result], scale: str) -> Section:
    rows = [["environment", "L x S x A, m", "OPT", "rho", "largest optimal multiplier", "cap of cpd_oppo"]]
    for stage, world in [(stage, world) for stage, some in sweep.stages(scale).items() for world in some]:
        run = results.get(sweep.cell(stage, world, "cpd_oppo").name)
        if stage == "short" or run is None:
            continue
        data = run.data
        rho, multiplier = float(data.slater_margin[0]), float(data.optimal_multipliers.max())
        sizes = " x ".join(str(data.attrs[name]) for name in ("layers", "states", "actions"))
        cap = float(data.hyper_dual_cap.isel(learner=0, setting=0, instance=0))
        mark = " (too small)" if cap < multiplier else ""
        about = [f"{float(data.optimum[0]):.4g}", f"{rho:.3g}", f"{multiplier:.3g}", f"{cap:.3g}{mark}"]
        rows.append([world.label, f"{sizes}, {data.sizes['constraint']}", *about])
    return Section("environments", rows, "Where the cap is below a multiplier, violation grows as T.")


def _figure(values: Values) -> Figure:
    labels = list(dict.fromkeys(label for of in values.values() for label in of))
    figure = Figure(figsize=(common.WIDE, 1.3 + 0.32 * len(values)), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, k, title in zip(axes, (0, 1), ("strong regret", "strong violation"), strict=True):
        for i, label in enumerate(labels):
            points = [(row, of[label][k]) for row, of in enumerate(values.values()) if label in of]
            x = [max(float(one.mean()), FLOOR) for _, one in points]
            y = [row + 0.6 * (i / max(len(labels) - 1, 1) - 0.5) for row, _ in points]
            again, j = divmod(i, len(common.PALETTE))  # a colour's second learner has a hollow mark
            style = {"color": common.PALETTE[j], "marker": common.MARKS[j], "fillstyle": "none" if again else "full"}
            axis.plot(x, y, linestyle="none", label=label, markersize=3.5, **style)
        axis.set(xscale="log", xlabel=f"{title} per episode ({'reward' if k == 0 else 'cost'})")
        axis.set_yticks(range(len(values)), list(values))
        axis.set_yticks(np.arange(len(values) - 1) + 0.5, minor=True)
        axis.tick_params(axis="y", which="both", length=0)
        axis.grid(visible=False, axis="y")
        axis.grid(axis="y", which="minor", alpha=0.6)
    axes[0].set_ylim(len(values) - 0.5, -0.5)
    common.legend(figure, axes[0], 4)
    return figure
