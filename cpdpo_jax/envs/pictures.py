"""Pictures: a small CMDP as a graph of layers, a policy on a grid."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Rectangle

from cpdpo_jax.common.palette import COLOURS
from cpdpo_jax.common.types import CMDP
from cpdpo_jax.envs.grids import MOVES, grid_of
from cpdpo_jax.exact.lp import occupancy

DASHES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (5, 1, 1, 1)))
MOST_STATES = 80  # more are indistinguishable
_FILLS = {"G": "#bfe3cf", "P": "#f3c6b4", "C": "#d9d9d9"}
_LABELS = {"S": "start", "G": "goal", "P": "pit", "C": "cliff", "A": "A", "B": "B"}


def draw_cmdp(cmdp: CMDP, policy: np.ndarray | None = None, *, title: str | None = None) -> Figure:
    """The layered graph: a node for each state, an arrow for each possible step, one colour and dash for each action.

    The width of an arrow shows the probability of the transition or, with a policy `[L, S, A]`, the expected number of
    times an episode takes it; transitions that are never taken are omitted.
    """
    states = np.asarray(cmdp.state_mask)
    if cmdp.batch_shape:
        raise ValueError(f"cmdp is a batch of shape {cmdp.batch_shape}; give one instance (see unstack).")
    if states.sum() > MOST_STATES:
        raise ValueError(f"cmdp has {states.sum()} states; a picture shows at most {MOST_STATES}.")
    mask, n_layers = np.asarray(cmdp.action_mask), cmdp.n_layers
    weight = mask.astype(float) if policy is None else _visits(cmdp, policy)
    where = {(n_layers, 0): (1.0 * n_layers, 0.0)}
    for k, x in np.argwhere(states):
        where[k, x] = (1.0 * k, (states[k].sum() - 1) / 2 - np.flatnonzero(states[k]).tolist().index(x))
    tallest = max(y for _, y in where.values())
    wide = 1.9 * n_layers + 1.6
    large = max(1.0, wide / 9)  # letters remain legible when a wide picture is scaled down
    figure, axis = plt.subplots(figsize=(wide, 1.5 * max(1.4, tallest) + 1.9 * large), layout="constrained")
    shown = set()
    for k, x, a in np.argwhere(mask):
        row = cmdp.transition[k, x, a] if k + 1 < n_layers else np.eye(cmdp.n_states)[0]
        for y in np.flatnonzero(row * weight[k, x, a] > 1e-6):
            bend = 0.16 * (a - (mask[k, x].sum() - 1) / 2)
            _arrow(axis, where[k, x], where[k + 1, int(y)], int(a), float(row[y] * weight[k, x, a]), bend)
            shown.add(int(a))
    for (k, x), (u, v) in where.items():
        ink = "0.2" if k == n_layers or weight[k, x].sum() > 1e-6 else "0.75"  # pale if no episode visits it
        axis.plot(u, v, "o", markersize=25, markerfacecolor="white", markeredgecolor=ink, zorder=3)
        label = "$x_0$" if k == 0 else "$x_L$" if k == n_layers else str(x)
        axis.text(u, v, label, ha="center", va="center", fontsize=min(16, 10 * large), color=ink, zorder=4)
    for k in range(n_layers):
        axis.text(k, -tallest - 0.62, f"layer {k}", ha="center", va="top", fontsize=9 * large, color="0.4")
    axis.set(xlim=(-0.4, n_layers + 0.4), ylim=(-tallest - 0.95, tallest + 0.55))
    axis.axis("off")
    handles = [
        Line2D([], [], color=COLOURS[a % len(COLOURS)], linestyle=DASHES[a % 4], label=f"action {a}")
        for a in sorted(shown)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9 * large)
    width = "how often it is taken" if policy is not None else "its probability"
    axis.set_title(f"{title or cmdp.name}  (width of an arrow: {width})", fontsize=10 * large)
    return figure


def draw_grid_policy(
    name: str, cmdp: CMDP, policy: np.ndarray, *, title: str | None = None, **parameters: Any
) -> Figure:
    """A policy `[L, S, A]` on a named grid: shade of a cell = visits per episode, arrows = share of moves there.

    Args:
        name: "cliff", "mars_rover" or "grid_three_constraints".
        cmdp: that environment.
        policy: the policy to draw, such as `solve(cmdp).policy`.
        title: title of the picture; None: the name.
        **parameters: the parameters that built `cmdp`.
    """
    cells, rows = grid_of(name, **parameters)
    if len(cells) != cmdp.n_layers or max(map(len, cells)) != cmdp.n_states:
        raise ValueError(f"cmdp does not match {name} with parameters {parameters}; give its own.")
    shape = len(rows), len(rows[0])
    moves = np.zeros((*shape, 4))
    for k, q in enumerate(_visits(cmdp, policy)):
        for x, (row, column) in enumerate(cells[k]):
            if row >= 0:
                moves[row, column] += q[x]
    visits = moves.sum(axis=2)
    figure, axis = plt.subplots(figsize=(0.8 * shape[1] + 1.6, 0.8 * shape[0] + 0.8), layout="constrained")
    final = np.array([[letter in "GP" and name != "grid_three_constraints" for letter in row] for row in rows])
    top = max(1e-9, visits[~final].max())  # the visits of absorbing cells would make all others pale
    image = axis.imshow(np.where(final, np.nan, visits), cmap="Blues", vmin=0, vmax=1.6 * top)
    for row, column in np.ndindex(shape):
        _cell(axis, row, column, rows[row][column], bool(final[row, column]), visits[row, column])
        if visits[row, column] > 1e-3 and not final[row, column]:
            _moves(axis, row, column, moves[row, column] / visits[row, column])
    axis.set(xticks=range(shape[1]), yticks=range(shape[0]))
    axis.set_xticks(np.arange(-0.5, shape[1]), minor=True)
    axis.set_yticks(np.arange(-0.5, shape[0]), minor=True)
    axis.grid(which="minor", color="0.75", linewidth=0.6)
    axis.tick_params(which="both", length=0, labelsize=8)
    axis.set_title(title or name, fontsize=10)
    bar = figure.colorbar(image, ax=axis, shrink=0.8)
    bar.ax.set_ylim(0, top)
    bar.set_label("visits per episode", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return figure


def _visits(cmdp: CMDP, policy: np.ndarray) -> np.ndarray:
    """q(x, a), the probability that an episode visits the pair, `[L, S, A]`; the policy's shape is checked."""
    if np.shape(policy) != cmdp.reward.shape:
        raise ValueError(f"policy has shape {np.shape(policy)}; give [L, S, A] = {cmdp.reward.shape}.")
    return occupancy(cmdp.transition, policy)


def _arrow(axis: Axes, start: tuple, end: tuple, action: int, weight: float, bend: float) -> None:
    """A bent arrow between two nodes."""
    axis.add_patch(
        FancyArrowPatch(
            start, end, connectionstyle=f"arc3,rad={bend:.3f}", arrowstyle="-|>", mutation_scale=9,
            shrinkA=13, shrinkB=14, color=COLOURS[action % len(COLOURS)], linestyle=DASHES[action % 4],
            linewidth=0.6 + 2.2 * weight, alpha=0.35 + 0.6 * min(1.0, weight), zorder=2,
        )
    )  # fmt: skip


def _cell(axis: Axes, row: int, column: int, letter: str, final: bool, visits: float) -> None:
    """Colour and name of a special cell; how many end there."""
    if letter in _FILLS:
        axis.add_patch(
            Rectangle((column - 0.5, row - 0.5), 1, 1, color=_FILLS[letter], alpha=1 if final else 0.6, lw=0)
        )
    if letter in _LABELS:
        axis.text(column - 0.44, row - 0.44, _LABELS[letter], fontsize=7, va="top", ha="left", color="0.25")
    if final and visits >= 5e-3:
        axis.text(column, row + 0.12, f"{visits:.2g}", fontsize=8, va="center", ha="center", color="0.2")


def _moves(axis: Axes, row: int, column: int, share: np.ndarray) -> None:
    """An arrow for each move; its length is the move's share."""
    for a, (down, right) in enumerate(MOVES):
        if share[a] > 0.02:
            length = 0.12 + 0.26 * share[a]
            style = {"arrowstyle": "-|>", "color": "#D55E00", "lw": 0.6 + 1.2 * share[a], "shrinkA": 0, "shrinkB": 0}
            axis.annotate("", (column + right * length, row + down * length), (column, row), arrowprops=style)
