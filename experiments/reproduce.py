"""Every published number, by one command: run the missing cells, store their results, update pages and figures.

    python -m experiments.reproduce                        # all experiments at small scale
    python -m experiments.reproduce suite --scale paper    # one experiment; after Ctrl-C the same command resumes
    python -m experiments.reproduce --no-run               # tables, pages and figures from stored results
    python -m experiments.reproduce --check                # version and age of the results, missing cells

Runs are kept in runs/VERSION/LEARNER-PRESETS/NAME/SCALE, so versions and presets are never mixed. The pages are made
from experiments/NAME/results/SCALE.json (`experiments.stored`).
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import cpdpo_jax as cp
from cpdpo_jax.common import files
from cpdpo_jax.results.tables import format_table
from cpdpo_jax.sweeps import provenance
from experiments import common, published, stored
from experiments.common import say
from experiments.experiment import Experiment

NAMES = (
    "suite", "slater", "no_slater", "cancellation", "ablation", "rivals", "cost", "theory", "adversarial", "ops",
    "growth",
)  # fmt: skip


def experiment(name: str) -> Experiment:
    """The experiment with this name, after registering its learners."""
    chosen: Experiment = importlib.import_module(f"experiments.{name}.__main__").EXPERIMENT
    chosen.register()
    return chosen


def run(chosen: Experiment, scale: str, runs: Path, on: str, root: Path = stored.ROOT) -> None:
    """Run the cells that are neither stored nor in their run directories."""
    valid = stored.still_valid(stored.read(chosen.name, scale, root), chosen, scale)
    missing = [cell for cell in chosen.cells(scale) if cell.name not in valid]
    for directory, cells in itertools.groupby(missing, stored.place(runs, chosen, scale)):
        directory.mkdir(parents=True, exist_ok=True)
        files.remove_unfinished(directory)
        chosen.run(directory, list(cells), on)


def collect(chosen: Experiment, scale: str, runs: Path, root: Path = stored.ROOT) -> bool:
    """Store the finished cells, and those stored before that are still valid; False if there are none."""
    finished = chosen.data(stored.place(runs, chosen, scale), scale)
    content = stored.read(chosen.name, scale, root)
    data = stored.still_valid(content, chosen, scale) | finished
    missing = chosen.missing(data, scale)
    if finished and (chosen.partial or not missing):
        sections, figures = chosen.tables(data, scale)
        if stored.write(chosen, scale, data, sections, root):
            say(f"{chosen.name}, {scale}: stored in {stored.path(chosen.name, scale, root)}")
        draw(chosen.name, scale, figures, root)
    elif finished:
        say(f"{chosen.name}, {scale}: {len(missing)} cells are missing, so nothing is stored")
    elif content is not None:
        draw(chosen.name, scale, chosen.tables(content["data"], scale)[1], root)
    return bool(finished) or content is not None


def draw(name: str, scale: str, figures: dict, root: Path = stored.ROOT) -> None:
    """Write the figures on the experiment's page, if this scale is the published one."""
    content = stored.read(name, root=root)
    if content is None or content["scale"] != scale:
        return
    shown = re.findall(r"\]\((\w+)\.png\)", (stored.ROOT / name / "README.md").read_text(encoding="utf-8"))
    for figure in shown:
        if figure in figures:
            common.write_figure(root / name / f"{figure}.png", figures[figure])


def check(names: Sequence[str], top: Path = published.TOP, root: Path = stored.ROOT) -> int:
    """Print what is stored; 1 if a published number differs from the stored one."""
    rows = [["experiment", "scale", "version", "presets", "days old", "cells run", "minutes", "tables"]]
    notes, code = [], provenance.versions()["code"]
    for name in names:
        chosen = experiment(name)
        for scale in stored.SCALES:
            content = stored.read(name, scale, root)
            if content is None:
                rows.append([name, scale, "never run", "", "", f"0 of {len(chosen.cells(scale))}", "", ""])
                continue
            other = [learner for learner, hashed in content["presets"].items() if stored.presets(learner) != hashed]
            hashes = stored.cell_hashes(chosen, scale)
            valid = stored.still_valid(content, chosen, scale)
            version = content["version"] + (" (another)" if content["version"] != cp.__version__ else "")
            minutes = f"{content['seconds'] / 60:.1f}"
            about = [f"{stored.age_in_days(content)}", f"{len(valid)} of {len(hashes)}", minutes]
            same = "other" if other else "the same"
            rows.append([name, scale, version, same, *about, f"{len(content['tables'])}"])
            if stale := sum(values.get("code", code) != code for values in content["data"].values()):
                notes.append(f"{name}, {scale}: {stale} cells were run with other code than this ({code})")
            if other:
                notes.append(f"{name}, {scale}: run with other presets of {', '.join(other)}")
            if missing := [cell for cell in hashes if cell not in valid]:
                shown = ", ".join(missing[:6]) + (", ..." if len(missing) > 6 else "")
                notes.append(f"{name}, {scale}: {len(missing)} cells not run: {shown}")
    print(format_table(rows), *notes, sep="\n")
    different = published.differences(top, root)
    for marker in different:
        print(f"differs from the stored results: {marker}")
    return int(bool(different))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 130 if stopped."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.reproduce",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"from {', '.join(NAMES)} (default: all)")
    parser.add_argument("--scale", choices=stored.SCALES, default="small", help="default: %(default)s")
    parser.add_argument(
        "--check", action="store_true", help="only report what is stored; exit code 1 if a page differs from it"
    )
    parser.add_argument("--no-run", action="store_true", help="use finished and stored cells only")
    parser.add_argument("--on", default="", help="local:4, slurm:16 or tcp://HOST:PORT (default: threads)")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="default: %(default)s")
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - set(NAMES):
        parser.error(f"there is no experiment {', '.join(sorted(unknown))}; choose from {', '.join(NAMES)}")
    names = given.names or NAMES
    if given.check:
        return check(names)
    code = 0
    for name in names:
        chosen = experiment(name)
        try:
            if not given.no_run:
                run(chosen, given.scale, given.runs, given.on)
            if not collect(chosen, given.scale, given.runs):
                say(f"{name}, {given.scale}: nothing has been run")
        except KeyboardInterrupt:
            say("stopped; the same command resumes")
            return 130
        except (ValueError, OSError) as error:  # the other experiments still run
            say(f"error: {error}")
            code = 2
    for page in published.publish():
        say(f"renewed {page}")
    return code


if __name__ == "__main__":
    sys.exit(main())
