"""Weak against strong metrics, and which learners oscillate, from stored results.

cancelled      the share of strong regret (violation) that the weak metric cancels, 1 - max(weak, 0) / strong, by seed
sign changes   of the gap at the end of one seed's run, per cycle time of sqrt(T) episodes
share above 0  of evenly spaced episodes with a gap above 0
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

import cpdpo_jax as cp
from experiments import common
from experiments.cancellation import sweep
from experiments.cancellation.sweep import LEARNERS
from experiments.common import Section
from experiments.statistics import format_mean

KINDS = ("regret", "violation")
NOISE = 1e-5  # a smaller gap has no sign: float32 noise of a value


class Gaps(NamedTuple):
    """One learner's regret, or the violation of its worst constraint (by its strong sum)."""

    strong: np.ndarray  # [seed] at T
    weak: np.ndarray  # [seed]
    changes: np.ndarray  # [seed] of sign, in the window at the end of the run
    above: np.ndarray  # [seed], the share of evenly spaced gaps above 0
    late: np.ndarray  # [2, seed], mean and standard deviation of the gaps in the window
    even: np.ndarray  # [episode] gaps of the first seed over the run
    window: np.ndarray  # [episode] and close together at its end; of the violation only


def measured(result: cp.Result, scale: str) -> common.Values:
    """`Gaps` of regret and of violation, as lists; the curves with the digits that a figure shows."""
    values = {}
    for kind in KINDS:
        *sums, even, window = _gaps(result, kind, scale)
        curves = [even, window if kind == "violation" else np.array([])]
        values[kind] = [common.rounded(array) for array in sums] + [common.rounded(array, 3) for array in curves]
    return values


def analyse(data: common.Data, scale: str) -> common.Analysis:
    """A table and a figure for each environment."""
    sections, figures = [], {}
    for name in sweep.environments(scale):
        runs = {
            (learner, kind): Gaps(*map(np.array, data[f"{name}-{learner}"][kind]))
            for learner in LEARNERS
            for kind in KINDS
        }
        sections.append(_table(name, runs, scale))
        figures[f"cancellation_{name}"] = _figure(name, runs, scale)
    return sections, figures


def _gaps(result: cp.Result, kind: str, scale: str) -> Gaps:
    data = result.data.isel(learner=0, instance=0, hparams=0).transpose("seed", "episode", ...)
    strong, weak, gap = data[f"strong_{kind}"], data[f"weak_{kind}"], data[f"{kind}_gap"]
    if kind == "violation":
        worst = int(strong.isel(episode=-1).mean("seed").argmax("constraint"))
        strong, weak, gap = (values.isel(constraint=worst) for values in (strong, weak, gap))
    even, late = (gap.sel(episode=points).values for points in (sweep.even(scale), sweep.window(scale)))
    spread = np.stack([late.mean(axis=1), late.std(axis=1)])
    above = (even > NOISE).mean(axis=1)
    return Gaps(strong.values[:, -1], weak.values[:, -1], sign_changes(late), above, spread, even[0], late[0])


def sign_changes(gap: np.ndarray) -> np.ndarray:
    """How often the sign changes along each row, [seed, episode] -> [seed]; gaps without a sign are skipped."""
    signs = [np.sign(row[np.abs(row) > NOISE]) for row in gap]
    return np.array([np.count_nonzero(np.diff(row)) for row in signs], float)


def _table(name: str, runs: dict[tuple[str, str], Gaps], scale: str) -> Section:
    head = ["learner", "of", "strong", "weak", "cancelled", "sign changes", "share above 0", "late gap: mean, sd"]
    rows = [head]
    episodes, window = sweep.EPISODES[scale], sweep.window(scale)
    cycles = (window[-1] - window[0]) / episodes**0.5
    for (learner, kind), gaps in runs.items():
        spread = "{:.3g}, {:.3g}".format(*gaps.late.mean(axis=1))
        sums = [format_mean(gaps.strong), format_mean(gaps.weak), _cancelled(gaps.strong, gaps.weak)]
        rows.append(
            [learner, kind, *sums, format_mean(gaps.changes / cycles), format_mean(gaps.above), spread]
        )  # fmt: skip
    note = (
        f"T = {episodes:,}; means and 95 % intervals over {sweep.SEEDS[scale]} seeds. Sign changes per sqrt(T) = "
        f"{episodes**0.5:.0f} episodes, and late gaps: in the last {window[-1] - window[0]:,} episodes, every "
        f"{window[1] - window[0]}."
    )
    return Section(name, name, rows, note)


def _cancelled(strong: np.ndarray, weak: np.ndarray) -> str:
    """The mean over the seeds that have anything to cancel."""
    some = strong > NOISE
    return format_mean(1 - np.maximum(weak, 0)[some] / strong[some]) if some.any() else "-"


def _figure(name: str, runs: dict[tuple[str, str], Gaps], scale: str) -> Figure:
    """The gaps of the first seed: a column per learner."""
    figure = Figure(figsize=(common.WIDE, 4.6), layout="constrained")
    axes = figure.subplots(3, len(LEARNERS), sharex="row", sharey="row", squeeze=False)
    for column, learner in enumerate(LEARNERS):
        regret, violation = (runs[learner, kind] for kind in KINDS)
        even, window = sweep.even(scale), sweep.window(scale)
        lines = ((even, regret.even), (even, violation.even), (window, violation.window))
        for axis, (x, gap) in zip(axes[:, column], lines, strict=True):
            axis.plot(x, gap, color=common.line_style(learner)["color"], linewidth=0.7)
            axis.axhline(0, color="0.2", linewidth=0.8)
            axis.locator_params(axis="x", nbins=3)
            axis.ticklabel_format(axis="x", style="sci", scilimits=(-3, 4), useOffset=False)
        axes[0, column].set_title(learner, fontsize=5.5)
        axes[2, column].set_xlabel("episode")
    axes[0, 0].set_ylabel("OPT - V(r)\n(reward per episode)")
    axes[1, 0].set_ylabel("V(g) - threshold\n(cost per episode)")
    axes[2, 0].set_ylabel("the same,\nend of the run")
    figure.suptitle(f"{name}: gaps of the policies played, seed 0 (above 0: regret, violation)", fontsize=8)
    return figure
