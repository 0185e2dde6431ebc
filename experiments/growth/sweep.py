"""What is run: learners on groups of random CMDPs, every T a run of its own with its own learning rates.

`ghosh` is for one constraint; an episode of it costs 26 times that of the others, so it stops a decade earlier.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from experiments.common import Cell

LEARNERS = ("cpd_oppo", "cpdpo", "optprimaldual", "uopt_rpgpd", "regularized_primal_dual", "ghosh")
LONG = ("cpd_oppo", "cpdpo", "optprimaldual", "uopt_rpgpd")  # to T = 10^7
LAST = {"ghosh": 10**5}  # the largest T of a learner
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

    def times_of(self, learner: str) -> tuple[int, ...]:
        """Those that the learner can afford."""
        return tuple(t for t in self.times if t <= LAST.get(learner, t))


def groups(scale: str) -> list[Group]:
    """Keys are not those of `experiments/tuning` (1000 and 1001)."""
    if scale == "tiny":
        environment = TINY | {"constraints": 1, "instances": 2}
        return [
            Group(
                "constraints_1", "1 constraint, 2 instances", environment, (50, 200), 3, ("cpd_oppo", "optprimaldual")
            )
        ]
    times, seeds = ((10**3, 10**4, 10**5), 16) if scale == "small" else ((10**4, 10**5, 10**6), 8)
    found = [
        Group(
            f"constraints_{m}", f"{m} constraint{'s' * (m > 1)}, 4 instances",
            SIZES | {"constraints": m, "instances": 4}, times, seeds,
            tuple(learner for learner in LEARNERS if m == 1 or learner != "ghosh"),
        )
        for m in (1, 2)
    ]  # fmt: skip
    if scale == "paper":  # instance 0 of the group above, further on
        times = (10**4, 10**5, 10**6, 10**7)
        found.append(Group("long", "2 constraints, 1 instance", SIZES | {"constraints": 2}, times, 32, LONG))
    return found


def cell(group: Group, learner: str, episodes: int) -> Cell:
    """One learner at one T."""
    options = {"episodes": episodes, "seeds": group.seeds, "checkpoints": 20}
    return Cell(f"{group.name}-{learner}-{episodes}", learner, group.environment, options)


def cells(scale: str) -> list[Cell]:
    """All of them, short ones first."""
    found = [
        cell(group, learner, episodes)
        for group in groups(scale)
        for learner in group.learners
        for episodes in group.times_of(learner)
    ]
    return sorted(found, key=lambda one: one.options["episodes"])  # in this order else
