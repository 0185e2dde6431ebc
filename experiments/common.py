"""What the experiments share: sweeps that are run once and stored, tables with intervals, figures, the command line.

An experiment is a package: `sweep` (what is run, as data), `analysis` (from stored results to tables and figures) and
`__main__` (the command). Results are kept in runs/NAME/SCALE/CELL, a run directory of `cp.run` per cell: a run that was
stopped or killed goes on from where it stood, and `cpdpo status` and `cpdpo report` understand each of them.
"""

from __future__ import annotations

import argparse
import io
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import cpdpo_jax as cp
from cpdpo_jax.common import files
from cpdpo_jax.results.figures import COLOURS as PALETTE
from cpdpo_jax.results.figures import DASHES
from cpdpo_jax.results.figures import MARKERS as MARKS
from cpdpo_jax.results.tables import format_table
from cpdpo_jax.sweeps import config
from cpdpo_jax.sweeps.store import Store

SCALES = ("tiny", "small", "paper")
STEPS = """\
Runs what is not stored yet, then writes table.txt, table.md and the figures beside the results and prints the table."""
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
    options: dict[str, Any]  # `episodes`, `seeds`, `settings` and the options of `simulate`

    @property
    def config(self) -> dict[str, Any]:
        """As `cp.run` takes it."""
        return {"learners": [self.learner], "environments": [self.environment], **self.options}


class Section(NamedTuple):
    """A table with a title above it and a note below."""

    title: str
    rows: list[list[str]]
    note: str = ""


Analysis = tuple[list[Section], dict[str, Figure]]


def run(directory: Path, cells: list[Cell]) -> None:
    """Run the cells that are not finished."""
    missing = [cell for cell in cells if not finished(directory, cell)]
    for i, cell in enumerate(missing, 1):
        episodes, seeds = cell.options["episodes"], cell.options["seeds"]
        say(f"{i} of {len(missing)}: {cell.name} ({episodes:,} episodes, {seeds} seeds)")
        cp.run(cell.config, directory / cell.name)


def finished(directory: Path, cell: Cell) -> bool:
    """Whether all of the cell has been run; an error if its directory holds the answer to another question."""
    store = Store(directory / cell.name)
    if store.exists and store.config != config.build(cell.config, cell.name):
        raise ValueError(f"{store.path} holds a run of another configuration; delete it, or give another --out.")
    return store.finished


def load(directory: Path, cells: list[Cell]) -> dict[str, cp.Result]:
    """All results by their cell's name."""
    missing = [cell.name for cell in cells if not finished(directory, cell)]
    if missing:
        raise ValueError(f"{directory} lacks {', '.join(missing)}; run the command without --analysis first.")
    return load_finished(directory, cells)


def load_finished(directory: Path, cells: list[Cell]) -> dict[str, cp.Result]:
    """The results that are there, by their cell's name: for tables that can say what was not run."""
    found = [cell for cell in cells if finished(directory, cell)]
    if not found:
        raise ValueError(f"{directory} has no finished run; run the command without --analysis first.")
    results = {cell.name: cp.load_run(directory / cell.name)[0].result for cell in found}
    for name, result in results.items():
        if (result.data.first_non_finite > 0).any():
            raise ValueError(f"{directory / name} has values that are not finite; its table would have no meaning.")
    return results


def look(i: int) -> dict[str, Any]:
    """The i-th line: colour, dash and marker."""
    return {"color": PALETTE[i % 10], "linestyle": DASHES[i % 7], "marker": MARKS[i % 10]}


def legend(figure: Figure, axis: Axes, columns: int = 4) -> None:
    """One legend below all panels, where no data are."""
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
        head, *body = ["| " + " | ".join(row) + " |" for row in section.rows]
        rule = "|---" * len(section.rows[0]) + "|"
        marked += [f"**{section.title}**", "", head, rule, *body, "", *([section.note, ""] if section.note else [])]
    files.write(directory / "table.txt", "\n".join(text))
    files.write(directory / "table.md", "\n".join(marked))
    for name, figure in figures.items():
        for suffix, metadata in (("png", None), ("pdf", {"CreationDate": None})):  # no date: the same file again
            buffer = io.BytesIO()
            figure.savefig(buffer, format=suffix, dpi=200, metadata=metadata)
            files.write(directory / f"{name}.{suffix}", buffer.getvalue())
    return "\n".join(text)


def say(text: str) -> None:
    """Progress, apart from the table."""
    print(text, file=sys.stderr, flush=True)


def command(
    name: str,
    about: str | None,
    cells: Callable[[str], list[Cell]],
    analyse: Callable[[Path, str], Analysis],
    learners: Sequence[cp.learners.Learner] = (),
) -> Callable[..., int]:
    """The command of an experiment that consists of cells, as a function of its arguments; `learners` are its own."""

    def run_scale(directory: Path, scale: str) -> None:
        run(directory, cells(scale))

    def of_arguments(arguments: Sequence[str] | None = None) -> int:
        for learner in learners:
            cp.learners.register(learner)
        return main(name, f"{about}\n\n{STEPS}", run_scale, analyse, arguments)

    return of_arguments


def main(
    name: str,
    about: str | None,
    run_scale: Callable[[Path, str], None],
    analyse: Callable[[Path, str], Analysis],
    arguments: Sequence[str] | None = None,
) -> int:
    """The command of an experiment: run what is not stored, then tables and figures; 130 if stopped."""
    parser = argparse.ArgumentParser(
        prog=f"python -m experiments.{name}", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--scale", choices=SCALES, default="small",
        help="tiny: seconds, to see that all of it works; small: minutes; paper: see README.md (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--analysis", action="store_true", help="only the tables and figures, from stored results")
    parser.add_argument("--out", type=Path, help=f"where results are kept (default: runs/{name}/SCALE)")
    chosen = parser.parse_args(arguments)
    directory = chosen.out or Path("runs") / name / chosen.scale
    started = time.perf_counter()
    try:
        if not chosen.analysis:
            directory.mkdir(parents=True, exist_ok=True)
            files.clear(directory)
            run_scale(directory, chosen.scale)
            say(f"ran in {time.perf_counter() - started:.0f} s; stored in {directory}")
        with mpl.rc_context(STYLE):
            sections, figures = analyse(directory, chosen.scale)
            print(save(directory, sections, figures))
    except KeyboardInterrupt:
        say("stopped; the same command goes on from what is stored")
        return 130
    except (ValueError, OSError) as error:
        say(f"error: {error}")
        return 2
    return 0
