"""What is run: every learner on every environment; those that solve linear programs for fewer episodes.

A learner joins when it is registered. Three stages: "all" has the learners without linear programs; "wide", at paper
scale, has them on environments with many states, for fewer episodes; "short" has all learners at a T that the linear
programs can afford, each with its constants for that T.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cpdpo_jax as cp
from experiments.common import Cell

ENTRIES: dict[str, tuple[str, Any]] = {  # label -> learner, settings
    "cpdpo": ("cpdpo", "tuned"),
    "optprimaldual": ("optprimaldual", "tuned"),
    "optdual": ("optdual", "tuned"),
    "regularized_primal_dual": ("regularized_primal_dual", "tuned"),
    "podb": ("podb", "tuned"),
    "uniform": ("uniform", "tuned"),
    "unconstrained_optimal": ("unconstrained_optimal", "tuned"),
    "optcmdp": ("optcmdp", "tuned"),
    "optcmdp_bonus": ("optcmdp_bonus", "tuned"),
}
PROGRAMS = ("optcmdp", "optcmdp_bonus")
UNRANKED = ("podb", "uniform", "unconstrained_optimal")  # they ignore the constraints, or do not learn
TINY = ("cpdpo", "optprimaldual", "uniform", *PROGRAMS)
BONUS = ("cpdpo", "podb")  # O(L^2 S^4 A) per episode

QUICK = ("media_streaming", "factored", "simple", "difficult", "random_episode_wise", "streaming_episode_wise")
MORE = ("inventory", "garnet")  # at paper scale
FEWER_SEEDS = {"media_streaming": 16, "garnet": 16}  # at paper scale, instead of 64
WIDE = {  # 20 to 64 states to a layer: T and seeds
    "cliff": (2000, 16),
    "random_uniform_pac": (2000, 16),
    "grid_three_constraints": (2000, 16),
    "mars_rover": (500, 32),
    "box": (500, 32),
}
WITHOUT_BONUS = ("mars_rover", "box")  # 0.1 s per episode and seed for `BONUS`
HARD = {"name": "hard", "share": 0.3}  # at the default share of 0.5 uniform play is optimal
RANDOM = {"name": "random", "layers": 5, "states": 5, "actions": 3, "constraints": 2, "rho": 0.5, "key": 1}


class World(NamedTuple):
    """An environment, how long and with how many seeds it is run, and whether learners of `BONUS` are left out."""

    label: str
    environment: dict[str, Any]
    episodes: int
    seeds: int
    without_bonus: bool = False


def worlds(scale: str) -> dict[str, list[World]]:
    """By stage. At paper scale all environments but `small_rho`, which is a batch (see `experiments/slater`)."""
    if scale == "tiny":
        return {"all": [World("hard", HARD | {"layers": 2}, 100, 3), World("difficult", {"name": "difficult"}, 50, 3)]}
    environments = {"random": RANDOM, "hard": HARD} | {name: {"name": name} for name in QUICK}
    if scale == "small":
        return {"all": [World(name, environment, 10**4, 64) for name, environment in environments.items()]}
    environments |= {name: {"name": name} for name in MORE}
    return {
        "all": [
            World(name, environment, 10**5, FEWER_SEEDS.get(name, 64)) for name, environment in environments.items()
        ],
        "wide": [World(name, {"name": name}, *WIDE[name], name in WITHOUT_BONUS) for name in WIDE],
    }


def short(scale: str) -> tuple[int, int]:
    """T and seeds of "short"."""
    return {"tiny": (4, 2), "small": (300, 4), "paper": (2000, 8)}[scale]


def entries(scale: str, stage: str, world: World) -> list[str]:
    """The labels that are run, in the order of the table."""
    known = cp.learners.names()
    return [
        label
        for label, (learner, _) in ENTRIES.items()
        if learner in known
        and (scale != "tiny" or label in TINY)
        and not (stage != "short" and label in PROGRAMS)
        and not (world.without_bonus and label in BONUS)
    ]


def stages(scale: str) -> dict[str, list[World]]:
    """`worlds`, and "short" if a learner needs it."""
    found = worlds(scale)
    if set(PROGRAMS) & set(cp.learners.names()):
        episodes, seeds = short(scale)
        found["short"] = [world._replace(episodes=episodes, seeds=seeds) for world in found["all"]]
    return found


def cell(stage: str, world: World, label: str) -> Cell:
    """One entry on one environment."""
    learner, settings = ENTRIES[label]
    options = {"episodes": world.episodes, "seeds": world.seeds, "checkpoints": 20, "settings": settings}
    return Cell(f"{stage}-{world.label}-{label}", learner, world.environment, options)


def cells(scale: str) -> list[Cell]:
    """Environment by environment."""
    return [
        cell(stage, world, label)
        for stage, some in stages(scale).items()
        for world in some
        for label in entries(scale, stage, world)
    ]
