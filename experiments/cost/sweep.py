"""What is measured: every learner as one size at a time grows from a base. A learner joins when it is registered."""

from __future__ import annotations

from typing import NamedTuple

import cpdpo_jax as cp

LEARNERS = (
    "cpdpo", "optprimaldual", "regularized_primal_dual", "optdual", "optcmdp", "optcmdp_bonus", "uniform",
)  # fmt: skip
PROGRAMS = ("optcmdp", "optcmdp_bonus")  # a linear program per episode, on the host
AXES = ("states", "actions", "layers", "constraints")
Sizes = dict[str, int]


class Scale(NamedTuple):
    """What a scale has."""

    learners: tuple[str, ...]
    base: Sizes
    axes: dict[str, tuple[int, ...]]
    lanes: int  # seeds at once; of the linear programs, `lanes` // 16
    seconds: float  # of the shortest call that is timed
    limit: float | None  # seconds that one cell may take in a process of its own; None: in this process, without limit


BASE = {"layers": 5, "states": 5, "actions": 3, "constraints": 2}
SCALES = {
    "tiny": Scale(
        ("uniform", "optprimaldual", "optcmdp"), {"layers": 3, "states": 2, "actions": 2, "constraints": 1},
        {"states": (2, 3)}, 32, 0.005, None,
    ),
    "small": Scale(
        LEARNERS, BASE,
        {"states": (5, 10, 20, 40), "actions": (2, 4, 8), "layers": (3, 5, 10), "constraints": (1, 2, 4)}, 64, 0.1, 100,
    ),
    "paper": Scale(
        LEARNERS, BASE,
        {"states": (5, 10, 20, 40), "actions": (2, 4, 8, 16), "layers": (3, 5, 10, 20), "constraints": (1, 2, 4, 8)},
        64, 0.3, 900,
    ),
}  # fmt: skip


def learners(scale: str) -> list[str]:
    """Those that are registered."""
    return [name for name in SCALES[scale].learners if name in cp.learners.names()]


def line(scale: str, axis: str) -> list[Sizes]:
    """The base with one size changed, small ones first."""
    of = SCALES[scale]
    return [of.base | {axis: value} for value in of.axes[axis]]


def name(learner: str, sizes: Sizes) -> str:
    """Of the file."""
    return f"{learner}-L{sizes['layers']}-S{sizes['states']}-A{sizes['actions']}-m{sizes['constraints']}"
