"""The measured sizes: one size at a time grows from a base, for all registered learners."""

from __future__ import annotations

from typing import NamedTuple

import cpdpo_jax as cp

LEARNERS = (
    "cpdpo", "cpd_oppo", "optprimaldual", "regularized_primal_dual", "optdual", "optcmdp", "optcmdp_bonus", "uniform",
)  # fmt: skip
PROGRAMS = ("optcmdp", "optcmdp_bonus")  # a linear program per episode, on the host
AXES = ("states", "actions", "layers", "constraints")
Sizes = dict[str, int]


class Scale(NamedTuple):
    """The sizes and limits of a scale."""

    learners: tuple[str, ...]
    base: Sizes
    axes: dict[str, tuple[int, ...]]
    lanes: int  # seeds per call; `lanes` // 16 for linear programs
    seconds: float  # minimum duration of a timed call
    limit: float | None  # seconds per cell in a separate process; None: in this process, without limit


BASE = {"layers": 5, "states": 5, "actions": 3, "constraints": 2}
SCALES = {
    "tiny": Scale(
        ("uniform", "optprimaldual", "optcmdp"), {"layers": 3, "states": 2, "actions": 2, "constraints": 1},
        {"states": (2, 3)}, 32, 0.005, None,
    ),
    "small": Scale(
        ("cpdpo", "cpd_oppo", "optcmdp", "uniform"), BASE,
        {"states": (5, 10, 20), "actions": (2, 3, 6), "layers": (3, 5, 10), "constraints": (1, 2, 4)}, 64, 0.1, 60,
    ),
    "paper": Scale(
        LEARNERS, BASE,
        {"states": (5, 10, 20, 40), "actions": (2, 4, 8, 16), "layers": (3, 5, 10, 20), "constraints": (1, 2, 4, 8)},
        64, 0.3, 900,
    ),
}  # fmt: skip


def learners(scale: str) -> list[str]:
    """The registered learners among the names."""
    return [name for name in SCALES[scale].learners if name in cp.learners.names()]


def line(scale: str, axis: str) -> list[Sizes]:
    """The base with one size changed, in increasing order."""
    parameters = SCALES[scale]
    return [parameters.base | {axis: value} for value in parameters.axes[axis]]


class Cell(NamedTuple):
    """A learner at one size, on the axis along which sizes grow."""

    learner: str
    axis: str
    sizes: Sizes
    of: Scale

    @property
    def name(self) -> str:
        """Its file; the same on all axes at the base."""
        return name(self.learner, self.sizes)


def name(learner: str, sizes: Sizes) -> str:
    """The name of a cell."""
    return f"{learner}-L{sizes['layers']}-S{sizes['states']}-A{sizes['actions']}-m{sizes['constraints']}"


def cells(scale: str) -> list[Cell]:
    """By learner and axis, in increasing order."""
    parameters = SCALES[scale]
    return [
        Cell(learner, axis, sizes, parameters)
        for learner in learners(scale)
        for axis in parameters.axes
        for sizes in line(scale, axis)
    ]
