"""An experiment: its cells, the values stored for each, the tables and figures made from them, and its command."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl

import cpdpo_jax as cp
from cpdpo_jax.common import files
from cpdpo_jax.sweeps.store import Store
from experiments import common

SCALES = ("tiny", "small", "paper")
STEPS = """\
Runs the missing cells, writes table.txt, table.md and the figures to the results' folder, and prints the table."""


def _seconds(session: dict[str, Any]) -> float:
    """How long a session lasted, with compilation; 0 if it was killed."""
    started, ended = session["started"], session["ended"] or session["started"]
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(started)).total_seconds()


class Experiment(NamedTuple):
    """An experiment: its cells, the values stored for each, and the analysis."""

    name: str
    about: str | None
    cells: Callable[[str], Sequence[Any]]  # of a scale; each has a name
    analyse: Callable[[common.Data, str], common.Analysis]
    measured: Callable[[cp.Result, str], common.Values] = common.ends  # of a cell that is a `Cell`
    run: Callable[[Path, Sequence[Any], str], None] = common.run  # the cells that are not stored
    read: Callable[[Path, Any], common.Values | None] | None = None  # of other cells; None: not stored
    partial: bool = False  # tables can state what was not run
    learners: Sequence[cp.learners.Learner] = ()  # its own

    def data(self, place: Callable[[Any], Path], scale: str) -> common.Data:
        """The values of the stored cells; `place` gives the directory of each."""
        data = {}
        for cell in self.cells(scale):
            directory = place(cell)
            if self.read is not None:
                values = self.read(directory, cell)
            elif common.finished(directory, cell):
                result = common.load_cell(directory, cell)
                manifest = Store(directory / cell.name).manifest
                values = self.measured(result, scale) | {"code": manifest["versions"]["code"]}
                values["seconds"] = sum(map(_seconds, manifest["sessions"]))
            else:
                values = None
            if values is not None:
                data[cell.name] = values
        return data

    def missing(self, data: common.Data, scale: str) -> list[str]:
        """The cells without values."""
        return [cell.name for cell in self.cells(scale) if cell.name not in data]

    def register(self) -> None:
        """Register its own learners."""
        for learner in self.learners:
            if learner.name not in cp.learners.names():
                cp.learners.register(learner)

    def tables(self, data: common.Data, scale: str) -> common.Analysis:
        """Tables and figures; ValueError if required values are missing."""
        missing = self.missing(data, scale)
        if missing and not (self.partial and data):
            raise ValueError(f"{self.name}, {scale}: lacks {', '.join(missing)}; run it without --analysis first.")
        with mpl.rc_context(common.STYLE):
            return self.analyse(data, scale)

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """The command: run the missing cells, then make tables and figures; 130 if interrupted."""
        parser = argparse.ArgumentParser(
            prog=f"python -m experiments.{self.name}", description=f"{self.about}\n\n{STEPS}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        parser.add_argument(
            "--scale", choices=SCALES, default="small",
            help="tiny: seconds, a check that everything works; small: minutes; paper: hours (default: %(default)s)",
        )  # fmt: skip
        parser.add_argument("--analysis", action="store_true", help="only the tables and figures, from stored results")
        parser.add_argument("--out", type=Path, help=f"where results are kept (default: runs/{self.name}/SCALE)")
        parser.add_argument("--on", default="", help="local:4, slurm:16 or tcp://HOST:PORT (default: threads)")
        chosen = parser.parse_args(arguments)
        directory = chosen.out or Path("runs") / self.name / chosen.scale
        self.register()
        started = time.perf_counter()
        try:
            if not chosen.analysis:
                directory.mkdir(parents=True, exist_ok=True)
                files.remove_unfinished(directory)
                self.run(directory, self.cells(chosen.scale), chosen.on)
                common.say(f"ran in {time.perf_counter() - started:.0f} s; stored in {directory}")
            data = self.data(lambda _: directory, chosen.scale)
            print(common.save(directory, *self.tables(data, chosen.scale)))
        except KeyboardInterrupt:
            common.say("stopped; the same command resumes")
            return 130
        except (ValueError, OSError) as error:
            common.say(f"error: {error}")
            return 2
        return 0
