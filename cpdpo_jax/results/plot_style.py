"""The style of figures: colours, markers and dashes of lines, text sizes, logarithmic axes, the legend's position."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cpdpo_jax.common import palette
from cpdpo_jax.results.statistics import metric
from cpdpo_jax.results.tables import common_hparams

if TYPE_CHECKING:
    import xarray as xr

DECADES = 5  # a logarithmic axis shows at most that many decades below its largest value
MAX_LABELLED = 7  # with more lines the legend is at the side of the panels instead of below
ROW_HEIGHT = 0.19  # inches per row of a legend at the side
TEXT_SIZE = 10.0  # points, in panels of at least FULL_WIDTH inches; text, lines and markers shrink with narrower panels
FULL_WIDTH, MIN_TEXT_SIZE = 4.5, 6.5
PAPER = {"one-column": (3.25, 2.2), "two-column": (6.75, 2.3)}  # inches: width of a figure, height of a row of panels
NOTE_LETTERS = 15  # letters of a note per inch of its panel
MIN_DISTANCE = 9.0  # points between the ends of two labelled lines
FONT_TYPES: dict[Any, Any] = {"pdf.fonttype": 42, "ps.fonttype": 42, "svg.fonttype": "none"}  # text, not outlines
FILLS = ("full", "none", "left", "right", "bottom", "top")

Position = tuple[int, int, int]  # positions of a learner, an instance and a hparams


class TextFigure(Figure):
    """A figure whose PDF and SVG files contain text, not outlines of letters."""

    def savefig(self, *arguments: Any, **options: Any) -> None:
        """Like `Figure.savefig`."""
        with mpl.rc_context(FONT_TYPES):
            super().savefig(*arguments, **options)


def new_figure(size: tuple[float, float]) -> TextFigure:
    """An empty figure of the given size in inches."""
    import matplotlib.pyplot as plt

    figure = plt.figure(FigureClass=TextFigure, figsize=size, layout="constrained")
    if "inline" in mpl.get_backend():
        plt.close(figure)  # a notebook would show it twice: as the value of the cell and as an open figure
    assert isinstance(figure, TextFigure)
    return figure


def side_legend_columns(n_lines: int, height: float) -> int:
    """The number of columns of a legend at the side of panels with the given height in inches."""
    return -(-n_lines // max(1, int(height / ROW_HEIGHT)))


def text_settings(points: float) -> dict[Any, Any]:
    """Matplotlib's rcParams for a text size, which determines all other sizes in a figure."""
    scale = points / TEXT_SIZE
    return {"font.size": points, "axes.linewidth": 0.8 * scale, "grid.linewidth": 0.5 * scale}


def text_size(width: float) -> float:
    """The text size in points for panels of the given width in inches."""
    return float(np.clip(TEXT_SIZE * width / FULL_WIDTH, MIN_TEXT_SIZE, TEXT_SIZE))


def line_styles(data: xr.Dataset) -> Iterator[tuple[Position, dict[str, Any], str]]:
    """The position, style and label of every (learner, instance, hparams) that was run.

    The learner determines colour and marker. The dash is that of the hparams and instance if there are several, and
    otherwise the learner's. Lines with equal styles, which learners outside the palette can have, differ by hollow
    markers.
    """
    n_learners, n_instances, n_hparams = (data.sizes[dim] for dim in ("learner", "instance", "hparams"))
    run = np.isfinite(metric(data, "strong_regret").transpose("learner", "instance", "hparams", ...).values)
    taken: set[tuple[str, str, int]] = set()
    for learner, instance, hparams in np.ndindex(n_learners, n_instances, n_hparams):
        if run[learner, instance, hparams].any():
            colour, mark, dash = palette.learner_style(str(data.learner.values[learner]))
            dash = hparams * n_instances + instance if n_hparams * n_instances > 1 else dash
            while (colour, mark, dash) in taken:
                dash += len(palette.DASHES)
            taken.add((colour, mark, dash))
            yield (learner, instance, hparams), _style(colour, mark, dash), label(data, (learner, instance, hparams))


def learner_line(learner: str, dash: int | None = None) -> dict[str, Any]:
    """Matplotlib's keywords for a learner's line, with its own dash or with that of its hparams."""
    colour, mark, own = palette.learner_style(learner)
    return _style(colour, mark, own if dash is None else dash)


def _style(colour: str, mark: str, dash: int) -> dict[str, Any]:
    """Matplotlib's keywords for a line; from the eighth dash on, the dashes repeat with hollow markers."""
    scale, (cycle, dash) = mpl.rcParams["font.size"] / TEXT_SIZE, divmod(dash, len(palette.DASHES))
    return {
        "color": colour,
        "linestyle": palette.DASHES[dash],
        "marker": mark,
        "fillstyle": FILLS[cycle % len(FILLS)],
        "markersize": 4 * scale,
        "linewidth": 1.5 * scale,
    }


def label(data: xr.Dataset, at: Position) -> str:
    """The learner, with the instance and the hparams if there are several, without what these share."""
    parts = [str(data.learner.values[at[0]])]
    if data.sizes["instance"] > 1:
        parts.append(f"{data.instance_name.values[at[1]]} ({data.instance.values[at[1]]})")
    if data.sizes["hparams"] > 1:
        parts.append(common_hparams([str(name) for name in data.hparams.values])[1][at[2]])
    return ", ".join(parts)


def set_scales(axis: Axes, x: np.ndarray, curves: Sequence[tuple[str, np.ndarray]], log: bool | None) -> None:
    """Make both axes logarithmic if all curves (label, y [x]) are non-negative and x spans a decade; otherwise linear.

    A logarithmic y axis ends DECADES below the largest value; a note lists the curves that are zero or below the axis.
    log=True forces logarithmic axes, symmetric around 0 for negative values; log=False forces linear ones.
    """
    finite = [values[np.isfinite(values)] for _, values in curves]
    lowest, top = (pick([pick(v) for v in finite if len(v)], default=0.0) for pick in (min, max))
    fits = lowest >= 0 and top > 0 and len(x) > 1 and x[-1] >= 10 * x[0]
    if not (fits if log is None else log):
        axis.axhline(0, color="0.7", linewidth=0.8, zorder=0)
        return
    axis.set_xscale("log")
    if lowest < 0:
        axis.set_yscale("symlog", linthresh=max(top, -lowest) / 1000)
        return
    if top <= 0:
        axis.text(0.5, 0.5, "0 throughout", transform=axis.transAxes, ha="center", fontsize="small", color="0.35")
        return
    positive = min(v[v > 0].min() for v in finite if (v > 0).any())
    bottom = max(positive / 1.3, top / 10**DECADES)
    axis.set_ylim(bottom, top * 1.6)
    axis.set_yscale("log")
    zero = [name for (name, _), v in zip(curves, finite, strict=True) if len(v) and v.max() <= 0]
    below = [f"{name} ({v.max():.1g})" for (name, _), v in zip(curves, finite, strict=True)
             if len(v) and 0 < v.max() < bottom]  # fmt: skip
    note(axis, {"0 throughout": zero, "below the axis": below})


def note(axis: Axes, notes: dict[str, list[str]], share: float = 1.0) -> None:
    """Write a note such as "0 throughout: a, b" into the corner; empty lists are left out.

    The layout will reduce the width of the axis to `share`, for instance for a legend at its side.
    """
    inches = axis.get_position().width * axis.get_figure(root=True).get_figwidth()  # pyright: ignore[reportOptionalMemberAccess]
    letters = int(share * inches * NOTE_LETTERS * TEXT_SIZE / mpl.rcParams["font.size"])
    lines = [textwrap.fill(f"{head}: {shortened(names)}", max(24, letters)) for head, names in notes.items() if names]
    if lines:
        box = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1.5}
        text = axis.text(0.98, 0.02, "\n".join(lines), transform=axis.transAxes, ha="right", va="bottom", bbox=box)
        text.set(fontsize="x-small", color="0.25")
        text.set_in_layout(False)


def visible(axis: Axes, values: np.ndarray) -> np.ndarray:
    """The values with NaN for those that a logarithmic axis cannot show."""
    return np.where(values > 0, values, np.nan) if axis.get_yscale() == "log" else values


def shortened(names: list[str]) -> str:
    """At most four names and the number of the others."""
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def legend(figure: Figure, axis: Axes, side: bool) -> None:
    """Add one legend for all panels: below them in as many columns as fit, or at their side."""
    handles, labels = axis.get_legend_handles_labels()
    if len(labels) < 2:
        return
    place: dict[str, Any] = {"loc": "outside lower center"}
    columns = legend_columns(labels, figure.get_figwidth())
    if side:
        place, columns = {"loc": "outside right upper"}, side_legend_columns(len(labels), figure.get_figheight())
    spacing: dict[str, Any] = {"frameon": False, "handlelength": 3.5, "columnspacing": 1.2, "borderpad": 0.2}
    figure.legend(handles, labels, ncols=columns, fontsize="small", **spacing, **place)


def legend_columns(labels: list[str], width: float) -> int:
    """The number of columns of a legend below panels of this width in inches."""
    entry = letter_width() * (max(map(len, labels)) + 9)
    return max(1, min(len(labels), 4, int(width / entry)))


def letter_width() -> float:
    """The mean width of a letter of the legend in inches."""
    return 0.0074 * mpl.rcParams["font.size"]


def label_ends(figure: Figure, axis: Axes) -> bool:
    """Write each line's label at its end; returns False, without labels, if two of them would be too close."""
    handles, labels = axis.get_legend_handles_labels()
    ends = []
    for line in handles:
        points = np.asarray(line.get_xydata(), float)  # pyright: ignore[reportAttributeAccessIssue]
        ends += points[np.isfinite(points).all(axis=1)][-1:].tolist()
    low, high = sorted(axis.get_ylim())
    if len(labels) > MAX_LABELLED or len(ends) < len(labels) or not all(low <= y <= high for _, y in ends):
        return False
    heights = np.sort([axis.transData.transform(end)[1] for end in ends]) * 72 / figure.dpi
    if len(ends) > 1 and np.diff(heights).min() < MIN_DISTANCE:
        return False
    for text, end, line in zip(labels, ends, handles, strict=True):
        axis.annotate(text, end, xytext=(6, 0), textcoords="offset points", va="center", fontsize="small",
                      color=line.get_color(), annotation_clip=False)  # pyright: ignore[reportAttributeAccessIssue]  # fmt: skip
    return True
