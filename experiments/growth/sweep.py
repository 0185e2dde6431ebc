"""What is run: three learners on groups of random CMDPs, every T a run of its own with its own learning rates.

CPD-PO has two settings: the tuned preset, and the same with 0.4 of its dual cap (0.2 (L+1)/rho), which is enough for
these CMDPs, as their multipliers are known to the reader, and not for every CMDP (`experiments/tuning`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from experiments.common import Cell

SMALL_CAP = {"dual_cap": "x0.4", "loss_scale": "x0.4"}
SETTINGS = {"cpdpo": ["tuned", SMALL_CAP]}
LEARNERS = {  # label -> learner, position of its setting
    "cpdpo": ("cpdpo", 0),
    "cpdpo, 0.4 of the cap": ("cpdpo", 1),
    "regularized_primal_dual": ("regularized_primal_dual", 0),
    "optprimaldual": ("optprimaldual", 0),
}
SIZES = {"name": "random", "layers": 5, "states": 5, "actions": 3, "rho": 0.5, "key": 1}
TINY = {"name": "random", "layers": 3, "states": 2, "actions": 2, "rho": 0.1, "key": 2}


class Group(NamedTuple):
    """Instances of one shape, all run at every T."""

    name: str
    title: str
    environment: dict[str, Any]
    times: tuple[int, ...]
    seeds: int
    labels: tuple[str, ...] = tuple(LEARNERS)


def groups(scale: str) -> list[Group]:
    """Keys are not those of `experiments/tuning` (1000 and 1001)."""
    if scale == "tiny":
        environment = TINY | {"constraints": 1, "instances": 2}
        return [Group("one_constraint", "1 constraint, 2 instances", environment, (50, 200), 3)]
    many = (10**3, 10**4, 10**5) if scale == "small" else (10**4, 10**5, 10**6)
    seeds = 16 if scale == "small" else 8
    found = [
        Group(
            f"constraints_{m}", f"{m} constraint{'s' * (m > 1)}, 4 instances",
            SIZES | {"constraints": m, "instances": 4}, many, seeds,
        )
        for m in (1, 2)
    ]  # fmt: skip
    if scale == "paper":  # instance 0 of the group above, further on
        times = (10**4, 10**5, 10**6, 10**7)
        found.append(Group("long", "2 constraints, 1 instance", SIZES | {"constraints": 2}, times, 64, ("cpdpo",)))
    return found


def cell(group: Group, learner: str, episodes: int) -> Cell:
    """One learner at one T, with all its settings; at T = 10^7 the tuned one."""
    settings = SETTINGS.get(learner, "tuned") if episodes < 10**7 else "tuned"
    options = {"episodes": episodes, "seeds": group.seeds, "checkpoints": 20, "settings": settings}
    return Cell(f"{group.name}-{learner}-{episodes}", learner, group.environment, options)


def cells(scale: str) -> list[Cell]:
    """All of them, short ones first."""
    return [
        cell(group, learner, episodes)
        for group in groups(scale)
        for episodes in group.times
        for learner in dict.fromkeys(LEARNERS[label][0] for label in group.labels)
    ]  # fmt: skip
