"""What is run: every learner on every environment; those that solve linear programs for fewer episodes.

A learner joins when it is registered. Stages: "all" has the learners without linear programs; "wide", at paper scale,
has them on environments with many states, for fewer episodes; "short", at small scale, has all learners at a T that the
linear programs can afford, each with its constants for that T.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cpdpo_jax as cp
from experiments.common import Cell

PROGRAMS = ("optcmdp", "optcmdp_bonus", "optpess_lp", "dope")  # a linear program per episode
SAFE = ("optpess_lp", "dope", "opse")  # they are told a safe policy
UNRANKED = ("uniform", "unconstrained_optimal")  # they ignore the constraints, or do not learn
RANKED = (
    "cpd_oppo", "cpdpo", "optprimaldual", "regularized_primal_dual", "uopt_rpgpd", "optdual", "optpess_primaldual",
    "triple_q",
)  # fmt: skip
LEARNERS = (*RANKED, "ghosh", *UNRANKED, *PROGRAMS, "opse")
TINY = ("cpd_oppo", "cpdpo", "optprimaldual", "uniform", "optcmdp", "optcmdp_bonus")

QUICK = ("media_streaming", "factored", "simple", "difficult", "random_episode_wise", "streaming_episode_wise")
MORE = ("inventory", "garnet")  # at paper scale
LARGE = ("media_streaming", "inventory", "garnet")  # 26 passes of `ghosh` for 10^5 episodes take an hour
TUNED_ON = ("random", "hard", "random_episode_wise")  # families of `experiments/tuning`, other instances
WIDE = {  # 20 to 64 states to a layer: T
    "cliff": 2000, "random_uniform_pac": 2000, "grid_three_constraints": 2000, "mars_rover": 500, "box": 500,
}  # fmt: skip
NOT_WIDE = ("cpdpo", "ghosh")  # 2 to 100 ms per episode and seed there
HARD = {"name": "hard", "share": 0.3}  # at the default share of 0.5 uniform play is optimal
RANDOM = {"name": "random", "layers": 5, "states": 5, "actions": 3, "constraints": 2, "rho": 0.5, "key": 1}
SEVERAL = ("random", "grid_three_constraints")  # more than one constraint


class World(NamedTuple):
    """An environment, and how long and with how many seeds it is run."""

    label: str
    environment: dict[str, Any]
    episodes: int
    seeds: int


def stages(scale: str) -> dict[str, list[World]]:
    """At paper scale all environments but `small_rho`, which is a batch (see `experiments/slater`)."""
    if scale == "tiny":
        few = {"hard": HARD | {"layers": 2}, "difficult": {"name": "difficult"}}
        return {
            "all": [World(name, environment, 100, 3) for name, environment in few.items()],
            "short": [World(name, environment, 4, 2) for name, environment in few.items()],
        }
    environments = {"random": RANDOM, "hard": HARD} | {name: {"name": name} for name in QUICK}
    if scale == "small":
        return {
            "all": [World(name, environment, 10**4, 32) for name, environment in environments.items()],
            "short": [World(name, environment, 500, 4) for name, environment in environments.items()],
        }
    environments |= {name: {"name": name} for name in MORE}
    return {
        "all": [World(name, environment, 10**5, 32) for name, environment in environments.items()],
        "wide": [World(name, {"name": name}, episodes, 32) for name, episodes in WIDE.items()],
    }


def entries(scale: str, stage: str, world: World) -> list[str]:
    """The learners that are run, in the order of the table."""
    found = [name for name in LEARNERS if name in cp.learners.names() and (scale != "tiny" or name in TINY)]
    left_out = set() if stage == "short" else {*PROGRAMS, *SAFE}
    left_out |= set(NOT_WIDE) if stage == "wide" else set()
    if world.label in SEVERAL or (world.label in LARGE and stage == "all"):
        left_out.add("ghosh")
    return [name for name in found if name not in left_out]


def cell(stage: str, world: World, learner: str) -> Cell:
    """One learner on one environment."""
    options = {"episodes": world.episodes, "seeds": world.seeds, "checkpoints": 20}
    return Cell(f"{stage}-{world.label}-{learner}", learner, world.environment, options)


def cells(scale: str) -> list[Cell]:
    """Environment by environment."""
    return [
        cell(stage, world, learner)
        for stage, some in stages(scale).items()
        for world in some
        for learner in entries(scale, stage, world)
    ]
