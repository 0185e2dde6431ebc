"""What is run: learners on groups of random CMDPs, every T a separate run with its own learning rates.

`ghosh` is for one constraint.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from experiments.common import Cell

LEARNERS = (
    "cpd_oppo", "cpd_oppo_free", "cpdpo", "optprimaldual", "uopt_rpgpd", "regularized_primal_dual", "optdual",
    "optpess_primaldual", "triple_q", "ghosh",
)  # fmt: skip
LONG = ("cpd_oppo", "cpd_oppo_free", "optprimaldual", "uopt_rpgpd")  # to T = 10^7
SIZES = {"name": "random", "layers": 5, "states": 5, "actions": 3, "rho": 0.5, "key": 1}
TINY = {"name": "random", "layers": 3, "states": 2, "actions": 2, "rho": 0.1, "key": 2}


class Group(NamedTuple):
    """Instances of one shape, run at every T."""

    name: str
    title: str
    environment: dict[str, Any]
    times: tuple[int, ...]
    seeds: int
    learners: tuple[str, ...]


def groups(scale: str) -> list[Group]:
    """Keys are not those of `experiments/tuning` (1000 and 1001)."""
    if scale == "tiny":
        environment = TINY | {"constraints": 1, "instances": 2}
        return [
            Group(
                "constraints_1", "1 constraint, 2 instances", environment, (50, 200), 3, ("cpd_oppo", "optprimaldual")
            )
        ]
    times, seeds = ((10**3, 10**4), 16) if scale == "small" else ((10**4, 10**5, 10**6), 8)
    chosen = [
        Group(
            f"constraints_{m}", f"{m} constraint{'s' * (m > 1)}, 4 instances",
            SIZES | {"constraints": m, "instances": 4}, times, seeds,
            tuple(learner for learner in LEARNERS if m == 1 or learner != "ghosh"),
        )
        for m in (1, 2)
    ]  # fmt: skip
    if scale == "paper":  # instance 0 of the group above, further on
        times = (10**4, 10**5, 10**6, 10**7)
        chosen.append(Group("long", "2 constraints, 1 instance", SIZES | {"constraints": 2}, times, 32, LONG))
    return chosen


def cell(group: Group, learner: str, episodes: int) -> Cell:
    """One learner at one T."""
    options = {"episodes": episodes, "seeds": group.seeds, "checkpoints": 20}
    return Cell(f"{group.name}-{learner}-{episodes}", learner, group.environment, options)


def cells(scale: str) -> list[Cell]:
    """All of them, short ones first."""
    chosen = [
        cell(group, learner, episodes)
        for group in groups(scale)
        for learner in group.learners
        for episodes in group.times
    ]
    return sorted(chosen, key=lambda item: item.options["episodes"])  # in this order else
