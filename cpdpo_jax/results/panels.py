"""The layout of a figure: panels, text size, legend, axis labels and titles, and the values of a line."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cpdpo_jax.common.text import counted
from cpdpo_jax.results import plot_style, units
from cpdpo_jax.results.plot_style import Position

if TYPE_CHECKING:
    import xarray as xr

Style = Literal["screen", "paper"]
STYLES: tuple[Style, ...] = ("screen", "paper")
Size = tuple[float, float] | Literal["one-column", "two-column"] | None  # inches, width and height, or a preset
AxesLike = Axes | Sequence[Axes] | np.ndarray | None  # the user's axes; None: a new figure


class Layout:
    """The layout of n panels: in the user's axes, in a figure of a given size, or in one of the default size.

    style="paper" uses a preset size, "one-column" (one panel per row) or "two-column", and only titles that the user
    gives.
    """

    def __init__(self, n: int, axes: AxesLike, size: Size, style: str, panel: tuple[float, float] = (4.5, 3.3)) -> None:
        if style not in STYLES:
            raise ValueError(f"style = {style!r} is not valid; choose one of {', '.join(STYLES)}.")
        if size is None and style == "paper":
            size = "one-column"
        if isinstance(size, str) and size not in plot_style.PAPER:
            raise ValueError(
                f"size = {size!r} is not valid; give inches, such as (9, 4), or {' or '.join(plot_style.PAPER)}."
            )
        if not (size is None or isinstance(size, str)) and (isinstance(size, int | float) or len(size) != 2):
            raise ValueError(f"size = {size!r} is not a pair; give width and height in inches, such as (9, 4).")
        self.n, self.given, self.paper = n, _user_axes(axes, n), style == "paper"
        self.chosen, self.preset = size is not None, isinstance(size, str)
        self.rows, self.columns = {1: (1, 1), 2: (1, 2), 3: (1, 3), 4: (2, 2)}.get(n, (-(-n // 3), 3))
        if size == "one-column":
            self.rows, self.columns = n, 1
        if isinstance(size, str):
            width, row = plot_style.PAPER[size]
            size = (width, row * self.rows + 0.3)  # 0.3: the first row of the legend
        self.size = size or (panel[0] * self.columns, panel[1] * self.rows)
        self.points = 8.0 if self.paper else plot_style.text_size(self.size[0] / self.columns)

    @contextlib.contextmanager
    def text(self) -> Iterator[None]:
        """The context for drawing, which sets the text size; in the user's axes it changes nothing."""
        with contextlib.nullcontext() if self.given else mpl.rc_context(plot_style.text_settings(self.points)):
            yield

    def open(self, labels: list[str]) -> tuple[Figure, list[Axes]]:
        """The figure and its panels; a figure of the default size is widened for a legend at the side."""
        if self.given:
            figure = self.given[0].get_figure(root=True)
            assert figure is not None
            return figure, self.given
        width, height = self.size
        if self.preset and len(labels) > 1:  # further rows of the legend must not shrink the panels
            rows = -(-len(labels) // plot_style.legend_columns(labels, width))
            height += (rows - 1) * 1.35 * self.points / 72
        if self.has_side_legend(len(labels)):
            longest = max(map(len, labels), default=0)
            width += plot_style.side_legend_columns(len(labels), height) * plot_style.letter_width() * (longest + 12)
        figure = plot_style.new_figure((width, height))
        return figure, list(figure.subplots(self.rows, self.columns, squeeze=False).flat)[: self.n]

    def has_side_legend(self, n_lines: int) -> bool:
        """Whether the legend is at the side of the panels."""
        return n_lines > plot_style.MAX_LABELLED and not self.chosen

    def close(self, figure: Figure, panels: list[Axes], n_lines: int, title: str | None, ends: bool = False) -> None:
        """Add the title and, for several lines, a legend (with `ends`, labels at the lines of a single panel)."""
        if self.given:
            outside: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.02, 1)}
            if n_lines > 1:
                place = outside if n_lines > plot_style.MAX_LABELLED else {}
                panels[-1].legend(fontsize="small", frameon=False, **place)
            return
        for unused in figure.axes[self.n :]:
            unused.set_axis_off()
        ends = ends and len(panels) == 1 and n_lines > 1 and not self.chosen
        if not (ends and plot_style.label_ends(figure, panels[0])):
            plot_style.legend(figure, panels[0], self.has_side_legend(n_lines))
        if title:
            letters = int(110 * figure.get_figwidth() / mpl.rcParams["font.size"])
            figure.suptitle(textwrap.fill(title, letters), fontsize="medium")

    def title(self, data: xr.Dataset, title: str | None, drawn: list) -> str | None:
        """The title with the number of seeds and the label of a single line; a paper has these in the caption."""
        if self.paper:
            return title
        seeds = f"{counted(data.sizes['seed'], 'seed')}, mean and 95 % interval"
        head = ", ".join(filter(None, [title, drawn[0][2] if len(drawn) == 1 else None]))
        return f"{head}: {seeds}" if head else seeds


def _user_axes(axes: AxesLike, n: int) -> list[Axes]:
    """The user's axes as a list, one per panel; [] for None."""
    if axes is None:
        return []
    flat = [axis for axis in np.atleast_1d(np.asarray(axes, object)).flat if isinstance(axis, Axes)]
    if len(flat) != n:
        raise ValueError(f"axes has {len(flat)} matplotlib Axes for {n} metrics; give one for each.")
    return flat


def line_values(values: xr.DataArray, at: Position) -> np.ndarray:
    """The values [episode, seed] of one line, without the seeds that were not run."""
    line = values.isel(learner=at[0], instance=at[1], hparams=at[2]).transpose("episode", "seed").values
    return line[:, np.isfinite(line).any(axis=0)]


def metric_unit(data: xr.Dataset, name: str) -> str:
    """The unit of a metric."""
    return units.reward_unit(data) if name.endswith("regret") else units.cost_unit(data)


def label_axis(axis: Axes, title: str, xlabel: str, ylabel: str) -> None:
    """Set title, labels, grid and ticks in the current text size."""
    inches = axis.get_position().width * axis.get_figure(root=True).get_figwidth()  # pyright: ignore[reportOptionalMemberAccess]
    letters = max(18, int(inches * 145 / mpl.rcParams["font.size"]))
    axis.set_title(textwrap.fill(title, letters), fontsize="medium")
    axis.set_xlabel(xlabel)
    axis.set_ylabel(ylabel)
    axis.grid(alpha=0.3, linewidth=mpl.rcParams["grid.linewidth"])
    small = 0.9 * mpl.rcParams["font.size"]
    axis.tick_params(which="both", labelsize=small, pad=0.35 * small)
