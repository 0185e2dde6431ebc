"""Every learner on every environment, with ranks and ratios to the best: the table to read first.

All numbers are per episode, means over the T episodes of a run. Ranks (1 is best) are by the mean over seeds, among
learners that were run for the same T without extra knowledge; `UNRANKED` ones ignore the constraints or do not learn.
Mean ranks are over environments on which all of the ranked were run; `ghosh` is for one constraint only. Some
environments belong to the families on which the presets were tuned: ranks are also given without them.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import rankdata

from cpdpo_jax.results import statistics
from experiments import common
from experiments.common import Section
from experiments.statistics import format_interval, format_mean
from experiments.suite import sweep
from experiments.suite.sweep import DEAR, SAFE, TUNED_ON, UNRANKED, World

METRICS = ("strong_regret", "strong_violation")
SCORES = ("regret", "violation", "sum")
FLOOR = 1e-5  # per episode: smaller values are shown as this, near the float32 noise of a value
FACTORS = (1, 1.25, 1.5, 2, 4, 10)  # of the performance profile

Ends = dict[str, dict[str, np.ndarray]]  # environment -> label -> [2, seed], regret and violation per episode


def analyse(data: common.Data, scale: str) -> common.Analysis:
    """Of what was run, per stage the mean ranks, the environments' tables and a figure; then what environments are."""
    sections, figures = [], {}
    for stage, worlds in sweep.stages(scale).items():
        ends: Ends = {}
        for world in worlds:
            runs = {
                label: data.get(sweep.cell(stage, world, label).name) for label in sweep.entries(scale, stage, world)
            }
            ends_of_world = {
                label: np.array([run[metric][0][0] for metric in METRICS]) / world.episodes
                for label, run in runs.items()
                if run is not None
            }
            if ends_of_world:
                ends[world.label] = ends_of_world
        if not ends:
            continue
        sections += [*_comparisons(stage, ends), _sums(stage, worlds, ends), _table(stage, worlds, ends)]
        figures[f"suite_{stage}"] = _figure(ends)
    sections.append(_about(data, scale))
    return sections, figures


def _ranked(runs: dict[str, np.ndarray]) -> list[str]:
    return [label for label in runs if label not in (*UNRANKED, *SAFE)]


def _scores(runs: dict[str, np.ndarray], labels: list[str]) -> np.ndarray:
    """Means by regret, by violation and by their sum, [label, 3]."""
    means = np.array([runs[label].mean(axis=1) for label in labels])
    return np.column_stack([means, means.sum(axis=1)])


def _ranks(runs: dict[str, np.ndarray], labels: list[str]) -> dict[str, np.ndarray]:
    """label -> [3]."""
    return dict(zip(labels, rankdata(_scores(runs, labels), axis=0), strict=True)) if labels else {}


def _comparisons(stage: str, ends: Ends) -> list[Section]:
    """Of the learners run on all environments; of all learners, over those on which all were run; each with and
    without the environments of the families that the presets were tuned on.
    """
    labels = list(dict.fromkeys(label for runs in ends.values() for label in _ranked(runs)))
    cheap = [label for label in labels if label not in DEAR]
    # the other environments are unfinished
    ends = {name: runs for name, runs in ends.items() if all(label in runs for label in cheap)}
    everywhere = [label for label in labels if all(label in runs for runs in ends.values())]
    complete = [name for name, runs in ends.items() if all(label in runs for label in labels)]
    sections = []
    for key, some, names in (("ranks", everywhere, list(ends)), ("ranks_with_ghosh", labels, complete)):
        others = [name for name in names if name not in TUNED_ON]
        for suffix, over, kind in (("", names, ""), ("_other_families", others, ", without the tuning families")):
            if len(some) > 1 and len(over) > 1 and (over is names or len(over) < len(names)):
                title = f"{len(some)} learners, {len(over)} environments ({stage}{kind})"
                sections.append(_comparison(f"{stage}_{key}{suffix}", title, some, {name: ends[name] for name in over}))
        if everywhere == labels:
            break
    return sections


def _comparison(key: str, title: str, labels: list[str], ends: Ends) -> Section:
    """Mean ranks, the mean ratio of the sum to the best's, and the performance profile of that ratio."""
    scores = np.array([_scores(runs, labels) for runs in ends.values()])  # [environment, label, 3]
    ranks = rankdata(scores, axis=1)
    sums = np.maximum(scores[:, :, 2], FLOOR)
    ratios = np.log(sums / sums.min(axis=1, keepdims=True))  # [environment, label]
    head = [*(f"mean rank by {score}" for score in SCORES), "mean ratio to the best"]
    rows = [["learner", *head, *(f"within x{factor:g}" for factor in FACTORS)]]
    order = np.argsort(ranks[:, :, 2].mean(axis=0), kind="stable")
    for i in order:
        low, high = statistics.t_interval(ranks[:, i].T)
        cells = [format_interval(*interval) for interval in zip(ranks[:, i].mean(axis=0), low, high, strict=True)]
        least, most = np.exp(np.clip(statistics.t_interval(ratios[:, i]), 0, None))
        cells.append(format_interval(float(np.exp(ratios[:, i].mean())), float(least), float(most)))
        shares = [f"{(ratios[:, i] <= np.log(factor) + 1e-12).mean():.2f}" for factor in FACTORS]
        rows.append([labels[i], *cells, *shares])
    note = (
        f"Over {', '.join(ends)}. Sum: strong regret + strong violation. Ratio: geometric mean of the sum divided by "
        "the least; within: the share of environments with at most this ratio. 95 % t intervals over these "
        f"{len(ends)} environments."
    )
    return Section(key, title, rows, note)


def _name(world: World) -> str:
    return world.label + (" (tuning family)" if world.label in TUNED_ON else "")


def _sums(stage: str, worlds: list[World], ends: Ends) -> Section:
    """Regret + violation, a column per learner; the least sum in bold."""
    labels = list(dict.fromkeys(label for runs in ends.values() for label in runs))
    rows = [["environment", *labels]]
    for world in (world for world in worlds if world.label in ends):
        runs = ends[world.label]
        ranks = _ranks(runs, _ranked(runs))
        cells = []
        for label in labels:
            text = "{:.3g} + {:.3g}".format(*runs[label].mean(axis=1)) if label in runs else "-"
            cells.append(f"**{text}**" if label in ranks and ranks[label][2] == 1 else text)
        rows.append([_name(world), *cells])
    times = sorted({f"{world.episodes:,}" for world in worlds})
    return Section(
        f"{stage}_sums", f"strong regret + strong violation per episode ({stage})", rows,
        f"T = {' or '.join(times)}, {worlds[0].seeds} seeds; the lowest sum among ranked learners is bold; "
        "-: not run, or the learner refuses the environment.",
    )  # fmt: skip


def _table(stage: str, worlds: list[World], ends: Ends) -> Section:
    head = ["environment", "T", "seeds", "learner", "strong regret", "rank", "strong violation", "rank", "rank by sum"]
    rows = [head]
    for world in (world for world in worlds if world.label in ends):
        ranks = _ranks(ends[world.label], _ranked(ends[world.label]))
        for label, samples in ends[world.label].items():
            rank = [f"{value:g}" for value in ranks.get(label, [])] or ["", "", ""]
            cells = [format_mean(samples[0]), rank[0], format_mean(samples[1]), rank[1], rank[2]]
            rows.append([_name(world), f"{world.episodes:,}", str(world.seeds), label, *cells])
    title = f"strong regret and violation per episode ({stage})"
    return Section(f"{stage}_intervals", title, rows, "Means over T and seeds, 95 % bootstrap intervals over seeds.")


def _about(data: common.Data, scale: str) -> Section:
    rows = [["environment", "L x S x A, m", "OPT", "rho", "largest optimal multiplier", "cap of cpd_oppo"]]
    for stage, world in [(stage, world) for stage, some in sweep.stages(scale).items() for world in some]:
        values = data.get(sweep.cell(stage, world, "cpd_oppo_free" if stage == "no_slater" else "cpd_oppo").name)
        if stage == "short" or values is None:
            continue
        multiplier, cap = values["multiplier"][0], values["cap"][0][0] if "cap" in values else np.nan
        mark = " (too small)" if cap < multiplier else ""
        about = [
            f"{values['optimum'][0]:.4g}",
            f"{values['rho'][0]:.3g}",
            f"{multiplier:.3g}",
            format_interval(cap) + mark,
        ]
        rows.append([world.label, f"{' x '.join(map(str, values['sizes'][:3]))}, {values['sizes'][3]}", *about])
    return Section("environments", "environments", rows, "Where the cap is below a multiplier, violation grows as T.")


def _figure(ends: Ends) -> Figure:
    labels = list(dict.fromkeys(label for runs in ends.values() for label in runs))
    figure = Figure(figsize=(common.WIDE, 1.3 + 0.32 * len(ends)), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, k, title in zip(axes, (0, 1), ("strong regret", "strong violation"), strict=True):
        for i, label in enumerate(labels):
            points = [(row, runs[label][k]) for row, runs in enumerate(ends.values()) if label in runs]
            x = [max(float(samples.mean()), FLOOR) for _, samples in points]
            y = [row + 0.6 * (i / max(len(labels) - 1, 1) - 0.5) for row, _ in points]
            axis.plot(x, y, label=label, markersize=3.5, **common.line_style(label) | {"linestyle": "none"})
        axis.set(xscale="log", xlabel=f"{title} per episode ({'reward' if k == 0 else 'cost'})")
        axis.set_yticks(range(len(ends)), list(ends))
        axis.set_yticks(np.arange(len(ends) - 1) + 0.5, minor=True)
        axis.tick_params(axis="y", which="both", length=0)
        axis.grid(visible=False, axis="y")
        axis.grid(axis="y", which="minor", alpha=0.6)
    axes[0].set_ylim(len(ends) - 0.5, -0.5)
    common.legend(figure, axes[0], 4)
    return figure
