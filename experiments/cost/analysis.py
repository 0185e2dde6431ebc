"""Time per episode, its growth exponents, and compilation time, from stored timings."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from experiments import common, statistics
from experiments.common import Section
from experiments.cost import sweep
from experiments.cost.measure import median
from experiments.cost.sweep import SCALES

SYMBOLS = {"states": "S", "actions": "A", "layers": "L", "constraints": "m"}


def analyse(answers: common.Data, scale: str) -> common.Analysis:
    """A table of times and one of compilation per axis, and a figure of all axes."""
    sections = [_times(answers, scale, axis) for axis in SCALES[scale].axes]
    sections += [_compilations(answers, scale, axis) for axis in SCALES[scale].axes]
    return sections, {"cost": _figure(answers, scale)}


def _line(answers: common.Data, scale: str, learner: str, axis: str) -> list[dict[str, Any]]:
    return [answers[sweep.name(learner, sizes)] for sizes in sweep.line(scale, axis)]


def _exponent(values: tuple[int, ...], line: list[dict[str, Any]]) -> str:
    """Least-squares slope of log time over log size; median and range over the repeats."""
    some = [(x, cell["microseconds"]) for x, cell in zip(values, line, strict=True) if "microseconds" in cell]
    if len(some) < 2:
        return "-"
    sizes, spent = zip(*some, strict=True)
    slopes = statistics.slope(sizes)(np.log(spent))
    return f"{np.median(slopes):.2f} [{slopes.min():.2f}, {slopes.max():.2f}]"


def _times(answers: common.Data, scale: str, axis: str) -> Section:
    parameters = SCALES[scale]
    values, symbol = parameters.axes[axis], SYMBOLS[axis]
    rows = [["learner", *(f"{symbol} = {value}" for value in values), "exponent", "exponent, last two"]]
    for learner in sweep.learners(scale):
        line = _line(answers, scale, learner, axis)
        cells = [cell.get("skipped") or f"{median(cell):.3g}" for cell in line]
        rows.append([learner, *cells, _exponent(values, line), _exponent(values[-2:], line[-2:])])
    rest = ", ".join(f"{SYMBOLS[name]} = {value}" for name, value in parameters.base.items() if name != axis)
    note = "Medians of 5; exponents: median and range. `uniform` is what the simulation itself costs."
    return Section(axis, f"microseconds per episode and seed as {symbol} grows ({rest})", rows, note)


def _compilations(answers: common.Data, scale: str, axis: str) -> Section:
    values, symbol = SCALES[scale].axes[axis], SYMBOLS[axis]
    rows = [["learner", *(f"{symbol} = {value}" for value in values)]]
    for learner in sweep.learners(scale):
        line = _line(answers, scale, learner, axis)
        rows.append([learner, *(cell.get("skipped") or f"{cell['compile_seconds']:.2g}" for cell in line)])
    return Section(f"{axis}_compilation", f"seconds of compilation as {symbol} grows", rows)


def _figure(answers: common.Data, scale: str) -> Figure:
    parameters = SCALES[scale]
    figure = Figure(figsize=(common.WIDE, 2.8), layout="constrained")
    axes = figure.subplots(1, len(parameters.axes), sharey=True, squeeze=False)[0]
    for panel, (axis, values) in zip(axes, parameters.axes.items(), strict=True):
        for learner in sweep.learners(scale):
            line = _line(answers, scale, learner, axis)
            panel.plot(values, [median(cell) for cell in line], label=learner, **common.line_style(learner))
        panel.set(xscale="log", yscale="log", xlabel=f"{axis} ({SYMBOLS[axis]})")
        panel.set_xticks(values, [str(value) for value in values])
        panel.xaxis.set_minor_formatter(NullFormatter())
    axes[0].set_ylabel("microseconds per episode and seed")
    common.legend(figure, axes[0], 4)
    return figure
