"""Results in the repository: experiments/NAME/results/SCALE.json, one file per experiment and scale.

experiment, scale
version, presets         of the package; a hash of each learner's presets
code                     hashes of the numerical code with which the cells were run
revision, date, machine, jax
seconds                  of all cells together
cells, missing           how many there are, and those that have not been run
tables                   key -> title, rows (the first with the names of columns) and note
data                     cell -> the values from which tables and figures are made, without a run, and its hash
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import cpdpo_jax as cp
from cpdpo_jax.common import files
from cpdpo_jax.common.machine import cores, cpu_type
from cpdpo_jax.learners import base
from cpdpo_jax.simulation.knowledge import problem_for
from cpdpo_jax.sweeps.provenance import git_revision, now, versions
from experiments.common import Data, Section
from experiments.experiment import Experiment

ROOT = Path(__file__).parent
SCALES = ("paper", "small")  # the first that is stored is published
Stored = dict[str, Any]


def path(name: str, scale: str, root: Path = ROOT) -> Path:
    """The file of an experiment's results."""
    return root / name / "results" / f"{scale}.json"


def read(name: str, scale: str = "", root: Path = ROOT) -> Stored | None:
    """The stored results at a scale (default: the published one); None if there are none."""
    for candidate in [scale] if scale else SCALES:
        if path(name, candidate, root).is_file():
            return json.loads(path(name, candidate, root).read_text(encoding="utf-8"))
    return None


@functools.cache
def presets(learner: str) -> str:
    """A hash of the numbers of all presets of a learner on one instance."""
    entry, cmdp = base.get(learner), cp.stack([cp.envs.make("factored")])
    problem = base.make_problem(cmdp, episodes=1000, delta=0.1, slater_margin=1.0)
    if entry.extra_knowledge:
        problem = problem_for(entry, problem, cmdp, cp.solve(cmdp), safety=0.5)
    hypers = [entry.hyperparameters(problem, preset) for preset in base.PRESETS]
    return _hash([[f"{x:.9g}" for x in np.ravel(value)] for hyper in hypers for value in hyper])


def place(runs: Path, experiment: Experiment, scale: str) -> Callable[[Any], Path]:
    """The run directories of a cell: those of another version or other presets are never mixed with them."""
    return lambda cell: runs / cp.__version__ / f"{cell.learner}-{presets(cell.learner)}" / experiment.name / scale


def cell_hashes(experiment: Experiment, scale: str) -> dict[str, str]:
    """A hash of each cell's description, the version and the learner's presets."""
    return {cell.name: _hash([repr(cell), cp.__version__, presets(cell.learner)]) for cell in experiment.cells(scale)}


def still_valid(content: Stored | None, experiment: Experiment, scale: str) -> Data:
    """The stored cells whose version, presets and description match the current ones."""
    hashes = cell_hashes(experiment, scale)
    data = content["data"] if content else {}
    return {name: values for name, values in data.items() if hashes.get(name) == values.get("cell_hash", "")}


def write(experiment: Experiment, scale: str, data: Data, sections: list[Section], root: Path = ROOT) -> bool:
    """Store the values and the tables made from them; False if they are already stored."""
    hashes = cell_hashes(experiment, scale)
    content: Stored = {
        "experiment": experiment.name,
        "scale": scale,
        "version": cp.__version__,
        "presets": {name: presets(name) for name in sorted({cell.learner for cell in experiment.cells(scale)})},
        "code": sorted({values["code"] for values in data.values() if "code" in values}),
        "cells": len(hashes),
        "missing": [name for name in hashes if name not in data],
        "seconds": round(sum(values.get("seconds") or 0 for values in data.values())),
        "tables": {part.key: {"title": part.title, "note": part.note, "rows": part.rows} for part in sections},
        "data": {name: data[name] | {"cell_hash": hashes[name]} for name in hashes if name in data},
    }
    before = read(experiment.name, scale, root)
    if before is not None and before == before | json.loads(json.dumps(content)):
        return False
    machine = f"{cpu_type()}, {cores()} cores"
    content |= {"date": now(), "machine": machine, "jax": versions()["jax"], "revision": git_revision()}
    target = path(experiment.name, scale, root)
    target.parent.mkdir(parents=True, exist_ok=True)
    files.write(target, _text(content) + "\n")
    return True


def has(table: dict[str, Any], labels: list[str], column: str) -> bool:
    """Whether a row begins with the labels and there is such a column."""
    head, *body = table["rows"]
    return column in head and any(row[: len(labels)] == labels for row in body)


def cell(table: dict[str, Any], labels: list[str], column: str) -> str:
    """The cell of the first row that begins with the labels; ValueError if there is none."""
    if not has(table, labels, column):
        raise ValueError(f"table {table['title']!r} has no row {labels} with a column {column!r}.")
    head, *body = table["rows"]
    return next(row for row in body if row[: len(labels)] == labels)[head.index(column)]


def age_in_days(content: Stored) -> int:
    """Days since it was stored."""
    return math.floor((np.datetime64(now()[:19]) - np.datetime64(content["date"][:19])) / np.timedelta64(1, "D"))


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:8]


def _text(value: Any, depth: int = 0) -> str:
    """JSON with a line per cell's value and per row of a table."""
    if depth < 4 and isinstance(value, dict) and value:
        items = [f"{json.dumps(name)}: {_text(item, depth + 1)}" for name, item in value.items()]
        return "{\n" + ",\n".join(items) + "\n}"
    if depth < 4 and isinstance(value, list) and value and isinstance(value[0], list):
        return "[\n" + ",\n".join(_text(row, 4) for row in value) + "\n]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
