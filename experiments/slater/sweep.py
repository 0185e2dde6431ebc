"""What is run: CMDPs that differ only in their Slater margin rho, and one misspecified margin."""

from __future__ import annotations

from typing import Any, NamedTuple

from experiments.common import Cell

WITH_RHO = ("cpd_oppo", "cpdpo", "regularized_primal_dual", "optprimaldual")
LEARNERS = (*WITH_RHO, "cpd_oppo_free")  # the last does not receive rho


class Sizes(NamedTuple):
    """The sizes of a scale."""

    sizes: dict[str, Any]
    rhos: tuple[float, ...]  # true ones, known to the learner
    rho: float  # the misspecified margin
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
    "small": Sizes(BIG, RHOS, 0.3, FACTORS, 1000, 4, 10**4, 8),
    "paper": Sizes(BIG, RHOS, 0.3, FACTORS, 10_000, 4, 10**6, 8),
}  # fmt: skip


def known(scale: str, learner: str) -> Cell:
    """The same P, r and g with every margin, ordered by draw, then by margin."""
    sizes = SCALES[scale]
    environment = {"name": "small_rho", **sizes.sizes, "rhos": list(sizes.rhos), "instances": sizes.instances}
    options = {"episodes": sizes.episodes, "seeds": sizes.seeds, "checkpoints": 20}
    return Cell(f"known-{learner}", learner, environment, options)


def believed(scale: str, learner: str) -> Cell:
    """One true margin, misspecified by each factor: an axis of hparams."""
    return _one_margin(scale, "believed", learner, [SCALES[scale].rho * factor for factor in SCALES[scale].factors])


def estimated(scale: str, learner: str) -> Cell:
    """The same margin, estimated."""
    return _one_margin(scale, "estimated", learner, f"estimate:{SCALES[scale].explored}")


def _one_margin(scale: str, name: str, learner: str, rho: Any) -> Cell:
    sizes = SCALES[scale]
    environment = {"name": "random", **sizes.sizes, "rho": sizes.rho, "instances": sizes.instances}
    options = {"episodes": sizes.episodes, "seeds": sizes.seeds, "checkpoints": 20, "rho": rho}
    return Cell(f"{name}-{learner}", learner, environment, options)


def cells(scale: str) -> list[Cell]:
    """Known first."""
    chosen = [known(scale, learner) for learner in LEARNERS]
    return chosen + [cell(scale, learner) for cell in (believed, estimated) for learner in WITH_RHO]
