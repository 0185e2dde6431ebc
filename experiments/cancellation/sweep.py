"""What is run: learners on a CMDP built for cycling and on two random ones."""

from __future__ import annotations

from typing import Any

from experiments.common import Cell

LEARNERS = ("cpd_oppo", "cpdpo", "optprimaldual", "uopt_rpgpd", "optdual", "regularized_primal_dual")
POINTS = 400  # episodes at which the gap of the policy played is recorded, over the run and again at its end
EPISODES = {"tiny": 200, "small": 20_000, "paper": 10**6}
SEEDS = {"tiny": 3, "small": 32, "paper": 32}  # a block of lanes


def environments(scale: str) -> dict[str, dict[str, Any]]:
    """By the name they have in tables."""
    if scale == "tiny":
        return {"hard": {"name": "hard", "layers": 2, "share": 0.3, "key": 1}}
    sizes = {"name": "random", "layers": 5, "states": 5, "actions": 3, "rho": 0.5, "key": 1}
    return {
        "hard": {"name": "hard", "share": 0.3, "key": 1},  # at 0.5 uniform play is optimal
        "random_1": sizes | {"constraints": 1},
        "random_2": sizes | {"constraints": 2},
    }


def even(scale: str) -> list[int]:
    """Evenly spaced over the run."""
    episodes = EPISODES[scale]
    step = max(1, episodes // POINTS)
    return list(range(step, episodes + 1, step))


def window(scale: str) -> list[int]:
    """Close together at the end: a cycle takes about sqrt(T) episodes, which 20 points resolve."""
    episodes = EPISODES[scale]
    step = max(1, round(episodes**0.5 / 20))
    return list(range(episodes, episodes // 2, -step))[:POINTS][::-1]


def cells(scale: str) -> list[Cell]:
    """One per environment and learner."""
    points = sorted({*even(scale), *window(scale)})
    options = {"episodes": EPISODES[scale], "seeds": SEEDS[scale], "checkpoints": points}
    return [
        Cell(f"{name}-{learner}", learner, environment, options)
        for name, environment in environments(scale).items()
        for learner in LEARNERS
    ]
