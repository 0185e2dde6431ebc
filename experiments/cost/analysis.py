"""Time per episode, its exponents in the sizes, and compilation apart; from stored timings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from cpdpo_jax.results import statistics
from experiments import common
from experiments.common import Section
from experiments.cost import sweep
from experiments.cost.measure import median
from experiments.cost.sweep import SCALES

SYMBOLS = {"states": "S", "actions": "A", "layers": "L", "constraints": "m"}

Answers = dict[str, dict[str, Any]]  # by the name of the file


def analyse(directory: Path, scale: str) -> common.Analysis:
    """Per axis a table of times and one of compilations; a figure of all axes."""
    answers = _load(directory, scale)
    sections = [_times(answers, scale, axis) for axis in SCALES[scale].axes]
    sections += [_compilations(answers, scale, axis) for axis in SCALES[scale].axes]
    return sections, {"cost": _figure(answers, scale)}


def _load(directory: Path, scale: str) -> Answers:
    names = [
        sweep.name(learner, sizes)
        for learner in sweep.learners(scale)
        for axis in SCALES[scale].axes
        for sizes in sweep.line(scale, axis)
    ]
    missing = [name for name in names if not (directory / f"{name}.json").is_file()]
    if missing:
        raise ValueError(f"{directory} lacks {', '.join(missing)}; run the command without --analysis first.")
    return {name: json.loads((directory / f"{name}.json").read_text()) for name in names}


def _line(answers: Answers, scale: str, learner: str, axis: str) -> list[dict[str, Any]]:
    return [answers[sweep.name(learner, sizes)] for sizes in sweep.line(scale, axis)]


def _exponent(values: tuple[int, ...], line: list[dict[str, Any]]) -> str:
    """Slope of log time over log size by least squares over what was measured; median and range over the repeats."""
    some = [(x, one["microseconds"]) for x, one in zip(values, line, strict=True) if "microseconds" in one]
    if len(some) < 2:
        return "-"
    sizes, spent = zip(*some, strict=True)
    slopes = statistics.slope(sizes)(np.log(spent))
    return f"{np.median(slopes):.2f} [{slopes.min():.2f}, {slopes.max():.2f}]"


def _times(answers: Answers, scale: str, axis: str) -> Section:
    of = SCALES[scale]
    values, symbol = of.axes[axis], SYMBOLS[axis]
    rows = [["learner", *(f"{symbol} = {value}" for value in values), "exponent", "exponent, last two"]]
    for learner in sweep.learners(scale):
        line = _line(answers, scale, learner, axis)
        cells = [one.get("skipped") or f"{median(one):.3g}" for one in line]
        rows.append([learner, *cells, _exponent(values, line), _exponent(values[-2:], line[-2:])])
    rest = ", ".join(f"{SYMBOLS[name]} = {value}" for name, value in of.base.items() if name != axis)
    note = "Medians of 5; exponents: median and range. `uniform` is what the simulation itself costs."
    return Section(f"microseconds per episode and seed as {symbol} grows ({rest})", rows, note)


def _compilations(answers: Answers, scale: str, axis: str) -> Section:
    values, symbol = SCALES[scale].axes[axis], SYMBOLS[axis]
    rows = [["learner", *(f"{symbol} = {value}" for value in values)]]
    for learner in sweep.learners(scale):
        line = _line(answers, scale, learner, axis)
        rows.append([learner, *(one.get("skipped") or f"{one['compile_seconds']:.2g}" for one in line)])
    return Section(f"seconds of compilation as {symbol} grows", rows)


def _figure(answers: Answers, scale: str) -> Figure:
    of = SCALES[scale]
    figure = Figure(figsize=(common.WIDE, 2.8), layout="constrained")
    axes = figure.subplots(1, len(of.axes), sharey=True, squeeze=False)[0]
    for panel, (axis, values) in zip(axes, of.axes.items(), strict=True):
        for i, learner in enumerate(sweep.learners(scale)):
            line = _line(answers, scale, learner, axis)
            panel.plot(values, [median(one) for one in line], label=learner, **common.look(i))
        panel.set(xscale="log", yscale="log", xlabel=f"{axis} ({SYMBOLS[axis]})")
        panel.set_xticks(values, [str(value) for value in values])
        panel.xaxis.set_minor_formatter(NullFormatter())
    axes[0].set_ylabel("microseconds per episode and seed")
    common.legend(figure, axes[0], 4)
    return figure
