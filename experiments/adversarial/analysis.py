"""Regret against the best fixed policy in hindsight, its growth with T, and a comparison of the two learners."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from cpdpo_jax.results.statistics import bootstrap_mean
from experiments import common
from experiments.adversarial import sweep
from experiments.adversarial.sweep import Game
from experiments.common import Section
from experiments.statistics import format_interval, format_mean, over_instances, slope

PAIR = "podb", "uob_reps"


def analyse(played: common.Data, scale: str) -> common.Analysis:
    """A table of regrets, one of paired differences, one with constraints, and one figure."""
    sections = [_regrets(played, scale), _differences(played, scale), _constrained(played, scale)]
    return sections, {"adversarial": _figure(played, scale)}


def _end(played: common.Data, scale: str, kind: str, learner: str, preset: str, episodes: int) -> np.ndarray:
    """The regret of every seed at T."""
    game = Game(kind, learner, preset, episodes, sweep.SEEDS[scale], sweep.SIZES[scale])
    return np.array(played[game.name]["regret"])


def _regrets(played: common.Data, scale: str) -> Section:
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
        f"{actions} actions. Each T is a separate run with its own rates. The best fixed policy is computed by LP for "
        "the realised losses, so adaptive losses differ between learners."
    )
    return Section("regret", "Regret against the best fixed policy in hindsight", rows, note)


def _differences(played: common.Data, scale: str) -> Section:
    longest = sweep.EPISODES[scale][-1]
    rows = [["losses", "preset", f"{PAIR[0]} - {PAIR[1]}", "lower regret"]]
    for kind in sweep.KINDS:
        for preset in ("tuned", "theory"):
            first, second = (_end(played, scale, kind, learner, preset, longest) for learner in PAIR)
            apart = first - second
            low, high = bootstrap_mean(apart)
            better = "neither" if low <= 0 <= high else PAIR[int(low > 0)]
            rows.append([kind, preset, format_interval(float(apart.mean()), float(low), float(high)), better])
    note = "Paired by seed (common random numbers); 95 % intervals. `neither`: the interval contains 0."
    return Section("differences", f"Differences of regret at T = {longest:,}", rows, note)


def _constrained(played: common.Data, scale: str) -> Section:
    longest = sweep.EPISODES[scale][-1]
    rows = [["losses", "learner", "preset", "regret", "strong violation"]]
    for kind in sweep.CONSTRAINED:
        for learner, preset in sweep.KEEPING:
            of = played[Game(kind, learner, preset, longest, sweep.SEEDS[scale], sweep.SIZES[scale]).name]
            shown = (format_mean(np.array(of[metric])) for metric in ("regret", "violation"))
            rows.append([kind.removeprefix("constrained_"), learner, preset, *shown])
    note = (
        f"T = {longest:,}. Costs are noisy, and a constraint binds. Regret against the best fixed policy that meets "
        "the constraints; violation of the policies played (s_ops: of the mixture). Means and 95 % intervals over "
        f"{sweep.SEEDS[scale]} seeds. s_ops knows a safe policy; uob_reps and uniform ignore the constraints."
    )
    return Section("constrained", "Adversarial losses with stochastic constraints", rows, note)


def _figure(played: common.Data, scale: str) -> Figure:
    figure = Figure(figsize=(common.WIDE, 2.9), layout="constrained")
    axes = figure.subplots(1, len(sweep.KINDS), squeeze=False)[0]
    longest = sweep.EPISODES[scale][-1]
    for axis, kind in zip(axes, sweep.KINDS, strict=True):
        for learner, preset in sweep.LEARNERS:
            game = Game(kind, learner, preset, longest, sweep.SEEDS[scale], sweep.SIZES[scale])
            of = played[game.name]
            episode, (mean, low, high) = of["episode"], np.array(of["curve"])
            style = common.line_style(learner, int(preset == "theory")) | {"marker": None}
            label = learner if learner == "uniform" else f"{learner}, {preset}"
            axis.plot(episode, mean, label=label, **style)
            axis.fill_between(episode, low, high, color=style["color"], alpha=0.15, lw=0)
        axis.set(title=kind, xlabel="episode")
        axis.axhline(0, color="0.6", lw=0.6, zorder=0)
    axes[0].set_ylabel("regret, best fixed policy so far")
    common.legend(figure, axes[0], columns=5)
    return figure
