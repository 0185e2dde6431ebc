"""The result of a run against losses that change with the episode, and its figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cpdpo_jax.common.text import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from cpdpo_jax.results.panels import AxesLike, Size, Style


class AdversarialRun(NamedTuple):
    """Cumulative loss, regret and violation of one learner at each checkpoint, for each seed."""

    learner: str  # its name
    hparams: str  # the label of its hyperparameters, such as "tuned"
    episodes: np.ndarray  # [C] the checkpoints
    loss: np.ndarray  # [C,seeds] expected loss of the policies played
    best: np.ndarray  # [C,seeds] loss of the best fixed policy for the losses so far, by LP
    regret: np.ndarray  # [C,seeds] loss - best
    violation: np.ndarray  # [C,seeds] strong violation of the worst constraint of the CMDP


def plot_losses(
    runs: AdversarialRun | Sequence[AdversarialRun],
    *,
    axes: AxesLike = None,
    size: Size = None,
    title: str | None = None,
    style: Style = "screen",
) -> Figure:
    """Plot the regret of runs of `play_losses` against episodes, with the mean and a 95 % band over seeds.

    At each point, the regret is against the best fixed policy for the losses so far. Both axes are linear, because
    regret can be negative. The options are those of `Result.plot`.
    """
    from cpdpo_jax.results.panels import Layout, label_axis
    from cpdpo_jax.results.plot_style import learner_line
    from cpdpo_jax.results.statistics import bootstrap_mean

    runs = [runs] if isinstance(runs, AdversarialRun) else list(runs)
    if not runs:
        raise ValueError("runs is empty; give at least one result of play_losses.")
    names = list(dict.fromkeys(run.hparams for run in runs))
    layout = Layout(1, axes, size, style, (5.6, 3.9))
    with layout.text():
        lines = [
            (run, f"{run.learner}, {run.hparams}" if len(names) > 1 else run.learner,
             learner_line(run.learner, names.index(run.hparams) if len(names) > 1 else None))
            for run in runs
        ]  # fmt: skip
        figure, (axis,) = layout.open([label for _, label, _ in lines])
        label_axis(axis, "regret against the best fixed policy", "episodes", "cumulative, loss")
        axis.axhline(0, color="0.7", linewidth=0.8, zorder=0)
        for run, label, keywords in lines:
            axis.plot(run.episodes, run.regret.mean(axis=1), label=label, markevery=0.12, **keywords)
            band = bootstrap_mean(run.regret)
            axis.fill_between(run.episodes, *band, color=keywords["color"], alpha=0.2, linewidth=0)
        seeds = f"{counted(runs[0].regret.shape[1], 'seed')}, mean and 95 % interval"
        heading = title if layout.paper else f"{title}: {seeds}" if title else seeds
        layout.close(figure, [axis], len(lines), heading, ends=True)
    return figure
