"""What is run: every learner, tuned, on three environments; those that solve linear programs for fewer episodes."""

from __future__ import annotations

from typing import Any

from experiments.common import Cell

PROGRAMS = ("optcmdp", "optcmdp_bonus")  # a linear program per episode
LEARNERS = (
    "cpdpo", "optprimaldual", "regularized_primal_dual", "optdual", *PROGRAMS, "podb", "uniform",
    "unconstrained_optimal", "lp_optimal",
)  # fmt: skip
EPISODES = {"tiny": (60, 20), "small": (10**5, 2000), "paper": (10**6, 20_000)}  # without and with linear programs
SEEDS = {"tiny": 2, "small": 20, "paper": 20}


def learners(scale: str) -> tuple[str, ...]:
    """A few at tiny scale."""
    return ("cpdpo", "optcmdp_bonus", "uniform") if scale == "tiny" else LEARNERS


def environments(scale: str) -> dict[str, dict[str, Any]]:
    """By the name they have in tables; none is among those of `experiments/tuning`."""
    hard = {"name": "hard", "share": 0.3, "key": 1}  # at the default share of 0.5 uniform play is optimal
    if scale == "tiny":
        return {"hard": hard | {"layers": 2}}
    random = {"name": "random", "layers": 5, "states": 5, "actions": 3, "constraints": 2, "rho": 0.5, "key": 1}
    return {"random": random, "hard": hard, "simple": {"name": "simple"}}


def cell(scale: str, environment: str, learner: str) -> Cell:
    """One learner on one environment."""
    options = {"episodes": EPISODES[scale][learner in PROGRAMS], "seeds": SEEDS[scale]}
    return Cell(f"{environment}-{learner}", learner, environments(scale)[environment], options)


def cells(scale: str) -> list[Cell]:
    """Environment by environment."""
    return [cell(scale, name, learner) for name in environments(scale) for learner in learners(scale)]
