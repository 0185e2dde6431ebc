"""Shared by the experiments: sweeps that are run once and stored, tables with intervals, figures, the command line.

An experiment is a package: `sweep` (what is run: its cells), `analysis` (from measured values to tables and figures)
and `__main__` (an `Experiment`). Results are kept in runs/NAME/SCALE/CELL, a run directory of `cp.run`
per cell: a run that was stopped or killed is resumed, and `cpdpo status` and `cpdpo report` read each of them. An
analysis needs only a few numbers per cell, in JSON: `experiments.reproduce` stores them in the repository and makes
tables and figures from them without a run.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import cpdpo_jax as cp
from cpdpo_jax.common import files, palette
from cpdpo_jax.results.tables import format_table
from cpdpo_jax.sweeps import config
from cpdpo_jax.sweeps.store import Store
from experiments import statistics

WIDE = 7.0  # inches: a figure over both columns of a page
STYLE: dict[Any, Any] = {
    "font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8, "xtick.labelsize": 7, "ytick.labelsize": 7,
    "legend.fontsize": 7, "legend.frameon": False, "lines.linewidth": 1.2, "lines.markersize": 4,
    "axes.grid": True, "grid.alpha": 0.3, "grid.linewidth": 0.5, "pdf.fonttype": 42,
}  # fmt: skip


class Cell(NamedTuple):
    """A sweep of one learner on one environment, kept in the run directory NAME."""

    name: str
    learner: str
    environment: dict[str, Any]  # a name and its parameters
    options: dict[str, Any]  # `episodes`, `seeds`, `hparams` and the options of `simulate`

    @property
    def config(self) -> dict[str, Any]:
        """As `cp.run` takes it."""
        return {"learners": [self.learner], "environments": [self.environment], **self.options}


class Section(NamedTuple):
    """A table by its key, with a title above it and a note below."""

    key: str
    title: str
    rows: list[list[str]]
    note: str = ""


Values = dict[str, Any]  # of a cell: numbers and nested lists of them; "seconds" is what it took
Data = dict[str, Values]  # by the cell's name
Analysis = tuple[list[Section], dict[str, Figure]]


def run(directory: Path, cells: Sequence[Cell], on: str = "") -> None:
    """Run the cells that are not finished."""
    missing = [cell for cell in cells if not finished(directory, cell)]
    for i, cell in enumerate(missing, 1):
        episodes, seeds = cell.options["episodes"], cell.options["seeds"]
        say(f"{i} of {len(missing)}: {cell.name} ({episodes:,} episodes, {seeds} seeds)")
        cp.run(cell.config, directory / cell.name, on=on)


def finished(directory: Path, cell: Cell) -> bool:
    """Whether all of the cell has been run; ValueError if its directory holds a run of another configuration."""
    store = Store(directory / cell.name)
    if store.exists and store.config != config.build(cell.config, cell.name):
        raise ValueError(f"{store.path} holds a run of another configuration; delete it, or give another --out.")
    return store.finished


def load(directory: Path, cells: Sequence[Cell]) -> dict[str, cp.Result]:
    """All results by their cell's name."""
    missing = [cell.name for cell in cells if not finished(directory, cell)]
    if missing:
        raise ValueError(f"{directory} lacks {', '.join(missing)}; run the command without --analysis first.")
    return {cell.name: load_cell(directory, cell) for cell in cells}


def load_cell(directory: Path, cell: Cell) -> cp.Result:
    """The result of a finished cell; an error if it has values that are not finite."""
    result = cp.load_run(directory / cell.name)[0].result
    if (result.data.first_non_finite > 0).any():
        raise ValueError(f"{directory / cell.name} has values that are not finite; its table would be meaningless.")
    return result


def ends(result: cp.Result, scale: str = "") -> Values:
    """Strong regret and violation at T, [hparams][instance][seed], and what is known about the instances."""
    data = result.data.isel(learner=0)
    values: Values = {}
    for metric in ("strong_regret", "strong_violation"):
        finals = [statistics.final_values(result.data, metric, hparams=i) for i in range(data.sizes["hparams"])]
        values[metric] = rounded(np.stack(finals))
    values["optimum"], values["rho"] = rounded(data.optimum.values), rounded(data.slater_margin.values)
    values["multiplier"] = rounded(data.optimal_multipliers.max("constraint").values)
    values["sizes"] = [int(data.attrs[name]) for name in ("layers", "states", "actions")] + [data.sizes["constraint"]]
    if "hyper_dual_cap" in data and "seed" not in data.hyper_dual_cap.dims:  # not of an estimated rho
        values["cap"] = rounded(data.hyper_dual_cap.transpose("hparams", "instance").values)
    return values


def rounded(values: Any, digits: int = 6) -> Any:
    """Numbers as nested lists; NaN is None."""
    if isinstance(values, np.ndarray):
        return [rounded(row, digits) for row in values] if values.ndim else rounded(values.item(), digits)
    return float(f"{values:.{digits}g}") if np.isfinite(values) else None


def line_style(learner: str, variant: int | None = None) -> dict[str, Any]:
    """Matplotlib's keywords for a learner's line, as in all other figures; dashes show the variants of a learner."""
    colour, mark, dash = palette.learner_style(learner)
    dashes = palette.DASHES[(dash if variant is None else variant) % len(palette.DASHES)]
    return {"color": colour, "linestyle": dashes, "marker": mark}


def legend(figure: Figure, axis: Axes, columns: int = 4) -> None:
    """One legend below all panels, where it hides no data."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(columns, len(labels)))


def episode_ticks(axis: Axes, times: Sequence[int]) -> None:
    """A logarithmic axis of T with a tick at each T that was run."""
    powers = [round(np.log10(t)) for t in times]
    labels = [f"$10^{k}$" if 10**k == t else f"{t:,}" for k, t in zip(powers, times, strict=True)]
    axis.set(xscale="log", xlabel="T (episodes)")
    axis.set_xticks(times, labels)
    axis.set_xticks([], minor=True)


def save(directory: Path, sections: list[Section], figures: dict[str, Figure]) -> str:
    """Write table.txt, table.md and the figures; the table's text."""
    text, marked = [], []
    for section in sections:
        text += [section.title, "", format_table(section.rows), *([section.note] if section.note else []), ""]
        marked += [
            f"**{section.title}**",
            "",
            markdown(section.rows),
            "",
            *([section.note, ""] if section.note else []),
        ]
    files.write(directory / "table.txt", "\n".join(text))
    files.write(directory / "table.md", "\n".join(marked))
    for name, figure in figures.items():
        write_figure(directory / f"{name}.png", figure)
        write_figure(directory / f"{name}.pdf", figure)
    return "\n".join(text)


def markdown(rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, the first row with the names of columns."""
    head, *body = rows
    lines = ["| " + " | ".join(row) + " |" for row in (head, *body)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def write_figure(path: Path, figure: Figure) -> None:
    """In the format of the path's suffix, without a date: the same file again."""
    buffer, suffix = io.BytesIO(), path.suffix[1:]
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format=suffix, dpi=200, metadata={"CreationDate": None} if suffix == "pdf" else None)
    files.write(path, buffer.getvalue())


def say(text: str) -> None:
    """Print progress, separate from the table."""
    print(text, file=sys.stderr, flush=True)
