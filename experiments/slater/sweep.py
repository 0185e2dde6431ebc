"""What is run: CMDPs that differ only in their Slater margin rho, and one margin that the learner gets wrong."""

from __future__ import annotations

from typing import Any, NamedTuple

from experiments.common import Cell

LEARNERS = ("cpd_oppo", "cpdpo", "regularized_primal_dual", "optprimaldual")


class Sizes(NamedTuple):
    """What a scale has."""

    sizes: dict[str, Any]
    rhos: tuple[float, ...]  # true ones, known to the learner
    rho: float  # the one that is got wrong
    factors: tuple[float, ...]  # believed / true
    explored: int  # episodes that estimate it
    instances: int
    episodes: int
    seeds: int


BIG = {"layers": 5, "states": 5, "actions": 3, "constraints": 2, "key": 2}
FACTORS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0)
RHOS = (1.0, 0.3, 0.1, 0.03, 0.01)
SCALES = {
    "tiny": Sizes(
        {"layers": 3, "states": 2, "actions": 2, "constraints": 1, "key": 2},
        (0.3, 0.1), 0.1, (1.0, 2.0), 20, 2, 100, 3,
    ),
    "small": Sizes(BIG, RHOS, 0.3, FACTORS, 1000, 4, 10**5, 8),
    "paper": Sizes(BIG, RHOS, 0.3, FACTORS, 10_000, 4, 10**6, 8),
}  # fmt: skip


def known(scale: str, learner: str) -> Cell:
    """The same P, r and g with every margin; all margins of the first draw first."""
    of = SCALES[scale]
    environment = {"name": "small_rho", **of.sizes, "rhos": list(of.rhos), "instances": of.instances}
    options = {"episodes": of.episodes, "seeds": of.seeds, "checkpoints": 20}
    return Cell(f"known-{learner}", learner, environment, options)


def believed(scale: str, learner: str, factor: float | None) -> Cell:
    """One margin, told to the learner wrong by a factor, or estimated (None)."""
    of = SCALES[scale]
    environment = {"name": "random", **of.sizes, "rho": of.rho, "instances": of.instances}
    rho = f"estimate:{of.explored}" if factor is None else of.rho * factor
    options = {"episodes": of.episodes, "seeds": of.seeds, "checkpoints": 20, "rho": rho}
    return Cell(f"believed-{learner}-{'estimated' if factor is None else f'{factor:g}'}", learner, environment, options)


def cells(scale: str) -> list[Cell]:
    """Known first."""
    found = [known(scale, learner) for learner in LEARNERS]
    return found + [
        believed(scale, learner, factor) for learner in LEARNERS for factor in (*SCALES[scale].factors, None)
    ]
