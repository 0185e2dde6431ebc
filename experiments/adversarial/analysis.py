"""Regret against the best fixed policy in hindsight, its growth with T, and the two learners beside each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from cpdpo_jax.results.statistics import bootstrap_mean, over_instances, slope
from cpdpo_jax.results.tables import format_interval, format_mean
from cpdpo_jax.simulation.adversarial import Played
from experiments import common
from experiments.adversarial import measure, sweep
from experiments.adversarial.sweep import Game
from experiments.common import Section

PAIR = "podb", "uob_reps"


def analyse(directory: Path, scale: str) -> common.Analysis:
    """A table of regrets, one of paired differences, and one figure."""
    played = measure.load(directory, sweep.cells(scale))
    return [_regrets(played, scale), _differences(played, scale)], {"adversarial": _figure(played, scale)}


def _end(played: dict[Game, Played], scale: str, kind: str, learner: str, preset: str, episodes: int) -> np.ndarray:
    """The regret of every seed at T."""
    game = Game(kind, learner, preset, episodes, sweep.SEEDS[scale], sweep.SIZES[scale])
    return played[game].regret[-1]


def _regrets(played: dict[Game, Played], scale: str) -> Section:
    times = sweep.EPISODES[scale]
    rows = [["losses", "learner", "preset", *(f"regret at T = {t:,}" for t in times)]]
    rows[0] += ["exponent"] * (len(times) > 1)
    for kind in sweep.KINDS:
        for learner, preset in sweep.LEARNERS:
            ends = [_end(played, scale, kind, learner, preset, t) for t in times]
            rows.append([kind, learner, preset, *(format_mean(end) for end in ends)])
            if len(times) > 1:
                rows[-1].append(format_interval(*over_instances([end[None] for end in ends], slope(times))))
    layers, states, actions = sweep.SIZES[scale]
    note = (
        f"Means and 95 % intervals over {sweep.SEEDS[scale]} seeds; a random MDP of {layers} layers, {states} states, "
        f"{actions} actions. Every T is a run of its own, with its own rates. Best fixed policy by LP, on the losses "
        "that came: those that chase a learner differ from learner to learner."
    )
    return Section("Regret against the best fixed policy in hindsight", rows, note)


def _differences(played: dict[Game, Played], scale: str) -> Section:
    longest = sweep.EPISODES[scale][-1]
    rows = [["losses", "preset", f"{PAIR[0]} - {PAIR[1]}", "lower regret"]]
    for kind in sweep.KINDS:
        for preset in ("tuned", "theory"):
            first, second = (_end(played, scale, kind, learner, preset, longest) for learner in PAIR)
            apart = first - second
            low, high = bootstrap_mean(apart)
            better = "neither" if low <= 0 <= high else PAIR[int(low > 0)]
            rows.append([kind, preset, format_interval(float(apart.mean()), float(low), float(high)), better])
    note = "Paired by seed (the same luck); 95 % intervals. `neither`: the interval has 0 in it."
    return Section(f"Differences of regret at T = {longest:,}", rows, note)


def _figure(played: dict[Game, Played], scale: str) -> Figure:
    figure = Figure(figsize=(common.WIDE, 2.9), layout="constrained")
    axes = figure.subplots(1, len(sweep.KINDS), squeeze=False)[0]
    longest = sweep.EPISODES[scale][-1]
    for axis, kind in zip(axes, sweep.KINDS, strict=True):
        for i, (learner, preset) in enumerate(sweep.LEARNERS):
            game = Game(kind, learner, preset, longest, sweep.SEEDS[scale], sweep.SIZES[scale])
            curve = played[game]
            look = common.look(i) | {"marker": None}
            label = learner if learner == "uniform" else f"{learner}, {preset}"
            axis.plot(curve.episodes, curve.regret.mean(axis=1), label=label, **look)
            low, high = np.quantile(curve.regret, [0.1, 0.9], axis=1)
            axis.fill_between(curve.episodes, low, high, color=look["color"], alpha=0.15, lw=0)
        axis.set(title=kind, xlabel="episode")
        axis.axhline(0, color="0.6", lw=0.6, zorder=0)
    axes[0].set_ylabel("regret, best fixed policy so far")
    common.legend(figure, axes[0], columns=5)
    return figure
