"""How figures look: which colour and dash a line has, which axes are logarithmic, where the legend stands."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cpdpo_jax.common.palette import COLOURS, DASHES, MARKERS
from cpdpo_jax.results.statistics import metric

if TYPE_CHECKING:
    import xarray as xr

DECADES = 5  # a logarithmic axis shows at most that many below its largest value
FEW = 7  # up to that many lines have their legend below the panels, more have it beside them
ROW = 0.19  # inches, of a legend beside the panels
WRITTEN = 15  # letters of a note to an inch of its panel
APART = 9.0  # points between the ends of two lines that can be labelled there
SAVED: dict[Any, Any] = {"pdf.fonttype": 42, "ps.fonttype": 42, "svg.fonttype": "none"}  # letters stay letters

At = tuple[int, int, int]  # positions of a learner, an instance and a setting


class Drawing(Figure):
    """A figure whose PDF and SVG files hold letters, not outlines of them."""

    def savefig(self, *arguments: Any, **options: Any) -> None:
        """As matplotlib's."""
        with mpl.rc_context(SAVED):
            super().savefig(*arguments, **options)


def drawing(size: tuple[float, float], n_lines: int, longest: int = 20) -> Drawing:
    """An empty figure, wider than `size` where a legend of `n_lines` will stand beside the panels."""
    import matplotlib.pyplot as plt

    columns = columns_beside(n_lines, size[1]) if n_lines > FEW else 0
    width = size[0] + columns * (0.8 + 0.068 * longest)
    figure = plt.figure(FigureClass=Drawing, figsize=(width, size[1]), layout="constrained")
    if "inline" in mpl.get_backend():
        plt.close(figure)  # a notebook shows what a cell returns, and all open figures too: once is enough
    assert isinstance(figure, Drawing)
    return figure


def columns_beside(n_lines: int, height: float) -> int:
    """How many columns a legend of that many lines needs beside panels of a height in inches."""
    return -(-n_lines // max(1, int(height / ROW)))


def lines(data: xr.Dataset) -> Iterator[tuple[At, dict[str, Any], str]]:
    """Every (learner, instance, setting) that was run: its place, its look and its label.

    The colour is the learner's, the dash the setting's (and the instance's, where there are several); past ten learners
    and seven dashes the marker tells those of one colour and dash apart.
    """
    n_learners, n_instances, n_settings = (data.sizes[dim] for dim in ("learner", "instance", "setting"))
    run = np.isfinite(metric(data, "strong_regret").transpose("learner", "instance", "setting", ...).values)
    for learner, instance, setting in np.ndindex(n_learners, n_instances, n_settings):
        if run[learner, instance, setting].any():
            variant = setting * n_instances + instance
            yield (learner, instance, setting), look(learner, variant), label(data, (learner, instance, setting))


def look(learner: int, variant: int = 0) -> dict[str, Any]:
    """Colour by learner, dash by variant, and a marker that tells repetitions apart."""
    again = learner // len(COLOURS)  # the colour comes a second time
    return {
        "color": COLOURS[learner % len(COLOURS)],
        "linestyle": DASHES[(variant + again) % len(DASHES)],
        "marker": MARKERS[(learner + again + 3 * (variant // len(DASHES))) % len(MARKERS)],
        "markersize": 4,
        "linewidth": 1.5,
    }


def label(data: xr.Dataset, at: At) -> str:
    """Learner, and instance and setting where there are several."""
    parts = [str(data.learner.values[at[0]])]
    if data.sizes["instance"] > 1:
        parts.append(f"{data.instance_name.values[at[1]]} ({data.instance.values[at[1]]})")
    if data.sizes["setting"] > 1:
        parts.append(str(data.setting.values[at[2]]))
    return ", ".join(parts)


def set_scales(axis: Axes, x: np.ndarray, curves: Sequence[tuple[str, np.ndarray]], log: bool | None) -> None:
    """Both axes logarithmic where all curves (label, y [x]) are at least 0 and x spans a decade, else both linear.

    No axis goes further down than DECADES below the largest value; curves that a logarithm cannot show, or that lie
    below the axis, are noted in words. `log` True bends a y axis with negative values around 0, False: both linear.
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
        axis.text(0.5, 0.5, "0 throughout", transform=axis.transAxes, ha="center", fontsize=8, color="0.35")
        return
    positive = min(v[v > 0].min() for v in finite if (v > 0).any())
    bottom = max(positive / 1.3, top / 10**DECADES)
    axis.set_ylim(bottom, top * 1.6)
    axis.set_yscale("log")
    zero = [name for (name, _), v in zip(curves, finite, strict=True) if len(v) and v.max() <= 0]
    below = [f"{name} ({v.max():.1g})" for (name, _), v in zip(curves, finite, strict=True)
             if len(v) and 0 < v.max() < bottom]  # fmt: skip
    note(axis, {"0 throughout": zero, "below the axis": below})


def note(axis: Axes, found: dict[str, list[str]]) -> None:
    """Words in the corner, such as "0 throughout: a, b"; a list of names that is empty says nothing."""
    wide = int(axis.get_position().width * axis.get_figure(root=True).get_figwidth() * WRITTEN)  # pyright: ignore[reportOptionalMemberAccess]
    words = [textwrap.fill(f"{what}: {_some(names)}", max(24, wide)) for what, names in found.items() if names]
    if words:
        box = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1.5}
        text = axis.text(0.98, 0.02, "\n".join(words), transform=axis.transAxes, ha="right", va="bottom", bbox=box)
        text.set(fontsize=7, color="0.25")
        text.set_in_layout(False)


def visible(axis: Axes, values: np.ndarray) -> np.ndarray:
    """The values that the axis can show: on a logarithmic one, NaN for what is not positive."""
    return np.where(values > 0, values, np.nan) if axis.get_yscale() == "log" else values


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def legend(figure: Figure, axis: Axes) -> None:
    """One legend for all panels: below them, or beside them where there are many lines."""
    handles, labels = axis.get_legend_handles_labels()
    if len(labels) > FEW:
        columns = columns_beside(len(labels), figure.get_figheight())
        figure.legend(
            handles, labels, loc="outside right upper", ncols=columns, fontsize=8, frameon=False, handlelength=3.5
        )
    elif len(labels) > 1:
        longest = max(map(len, labels))
        columns = max(1, min(len(labels), 4, int(figure.get_figwidth() // (0.8 + 0.068 * longest))))
        figure.legend(
            handles, labels, loc="outside lower center", ncols=columns, fontsize=8, frameon=False, handlelength=3.5
        )


def label_ends(figure: Figure, axis: Axes) -> bool:
    """Write each line's label at its end, where no two of them come too near to each other; False: they do."""
    handles, labels = axis.get_legend_handles_labels()
    ends = []
    for line in handles:
        points = np.asarray(line.get_xydata(), float)  # pyright: ignore[reportAttributeAccessIssue]
        ends += points[np.isfinite(points).all(axis=1)][-1:].tolist()
    low, high = sorted(axis.get_ylim())
    if len(labels) > FEW or len(ends) < len(labels) or not all(low <= y <= high for _, y in ends):
        return False
    heights = np.sort([axis.transData.transform(end)[1] for end in ends]) * 72 / figure.dpi
    if len(ends) > 1 and np.diff(heights).min() < APART:
        return False
    for text, end, line in zip(labels, ends, handles, strict=True):
        axis.annotate(text, end, xytext=(6, 0), textcoords="offset points", va="center", fontsize=8,
                      color=line.get_color(), annotation_clip=False)  # pyright: ignore[reportAttributeAccessIssue]  # fmt: skip
    return True
