"""What is run: every learner on every environment; those that solve linear programs for fewer episodes.

Stages: "all" has the learners without linear programs; "no_slater" has two environments without a strictly feasible
policy, which most learners refuse; "wide", at paper scale, has environments with many states, for fewer episodes;
"short" has all learners at a T that the linear programs can afford, each with its constants for that T.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import cpdpo_jax as cp
from experiments.common import Cell

PROGRAMS = ("optcmdp", "optcmdp_bonus", "optpess_lp", "dope")  # a linear program per episode
SAFE = ("optpess_lp", "dope", "opse")  # they receive a safe policy
UNRANKED = ("uniform", "unconstrained_optimal")  # they ignore the constraints, or do not learn
DEAR = ("cpdpo", "ghosh", "cpdpo_past")  # run last: occupancy bounds of every state, and 26 passes per episode
RANKED = (
    "cpd_oppo", "cpd_oppo_free", "optprimaldual", "regularized_primal_dual", "uopt_rpgpd", "optdual",
    "optpess_primaldual", "triple_q", "cpdpo", "cpdpo_past",
)  # fmt: skip
LEARNERS = (*RANKED, "ghosh", *UNRANKED, *PROGRAMS, "opse")
TINY = ("cpd_oppo", "cpdpo", "optprimaldual", "uniform", "optcmdp", "optcmdp_bonus")
SIZES = {"layers": 5, "states": 5, "actions": 3}
TABLES = Path("experiments/suite")  # of Gymnasium, made by `experiments.suite.gymnasium_tables`


class World(NamedTuple):
    """An environment, and how long and with how many seeds it is run."""

    label: str
    environment: dict[str, Any]
    episodes: int
    seeds: int


def _random(key: int, constraints: int, **parameters: Any) -> dict[str, Any]:
    return {"name": "random", **SIZES, "constraints": constraints, "key": key, **parameters}


TIGHTNESS = (0.3, 0.5, 0.5, 0.7, 0.7, 0.9)
HELD_OUT = {f"random_{2000 + i}": _random(2000 + i, 1 + i % 2, tightness=t) for i, t in enumerate(TIGHTNESS)}
FAMILIES = {  # of `experiments/tuning`, other instances
    "random": _random(1, 2, rho=0.5),
    "hard": {"name": "hard", "share": 0.3},  # at the default share of 0.5 uniform play is optimal
    "random_episode_wise": {"name": "random_episode_wise"},
}
QUICK = {name: {"name": name} for name in ("factored", "simple", "difficult", "streaming_episode_wise")}
SHAPES = {  # random families of other shapes
    "deep": {"name": "random", "layers": 12, "states": 3, "actions": 2, "key": 11},
    "broad": {"name": "random", "layers": 3, "states": 7, "actions": 5, "constraints": 3, "key": 12},
    "sparse": {"name": "random", "layers": 6, "states": 6, "actions": 4, "concentration": 0.1, "key": 13},
    "garnet_2": {"name": "garnet", "horizon": 5, "states": 6, "actions": 4, "constraints": 2, "key": 14},
}
LARGE = {name: {"name": name} for name in ("media_streaming", "inventory", "garnet")} | {
    "frozen_lake": {"name": str(TABLES / "frozen_lake.npz")},
}
NO_SLATER = {name: {"name": name, "key": 1} for name in ("least_cost", "fixed_cost")}
WIDE = {  # 20 to 64 states to a layer: T
    "cliff": 2000, "random_uniform_pac": 2000, "grid_three_constraints": 2000, "mars_rover": 500, "box": 500,
}  # fmt: skip
TUNED_ON = (*FAMILIES, *HELD_OUT)
SEVERAL = ("random", *list(HELD_OUT)[1::2], "broad", "garnet_2", "fixed_cost", "grid_three_constraints")  # constraints


def stages(scale: str) -> dict[str, list[World]]:
    """At paper scale all environments but `small_rho`, which is a batch (see `experiments/slater`)."""

    def worlds(environments: dict[str, dict[str, Any]], episodes: int, seeds: int = 32) -> list[World]:
        return [World(name, environment, episodes, seeds) for name, environment in environments.items()]

    if scale == "tiny":
        few = {"hard": FAMILIES["hard"] | {"layers": 2}, "difficult": QUICK["difficult"]}
        return {"all": worlds(few, 100, 3), "short": worlds(few, 4, 2)}
    if scale == "small":
        few = {name: (FAMILIES | QUICK)[name] for name in ("hard", "random_episode_wise", "simple", "difficult")}
        some = {name: few[name] for name in ("hard", "simple")}
        return {"all": worlds(few, 10**4), "no_slater": worlds(NO_SLATER, 10**4), "short": worlds(some, 500, 4)}
    return {
        "all": worlds(FAMILIES | HELD_OUT | QUICK | SHAPES | LARGE, 10**5),
        "no_slater": worlds(NO_SLATER, 10**5),
        "short": worlds(FAMILIES | QUICK, 1000, 4),
        "wide": [World(name, {"name": name}, episodes, 32) for name, episodes in WIDE.items()],
    }


def entries(scale: str, stage: str, world: World) -> list[str]:
    """The learners that are run, in the order of the table."""
    left_out = set() if stage == "short" else {*PROGRAMS, *SAFE}
    if stage == "wide":
        left_out |= set(DEAR)  # 2 to 100 ms per episode and seed there
    if world.label in SEVERAL:
        left_out |= {name for name in LEARNERS if cp.learners.get(name).most_constraints == 1}
    if world.label in NO_SLATER:
        left_out |= {name for name in LEARNERS if cp.learners.get(name).needs_slater}  # they refuse it
    return [name for name in (TINY if scale == "tiny" else LEARNERS) if name not in left_out]


def cell(stage: str, world: World, learner: str) -> Cell:
    """One learner on one environment."""
    options = {"episodes": world.episodes, "seeds": world.seeds, "checkpoints": 20}
    return Cell(f"{stage}-{world.label}-{learner}", learner, world.environment, options)


def cells(scale: str) -> list[Cell]:
    """Environment by environment; the expensive learners follow, then the stages "short" and "wide"."""

    def order(run: tuple[str, World, str]) -> tuple[bool, bool, int]:
        stage, world, learner = run
        dear = DEAR.index(learner) + 1 if learner in DEAR else 0
        return stage in ("short", "wide"), dear > 0 and world.label in LARGE, dear

    runs = [
        (stage, world, learner)
        for stage, some in stages(scale).items()
        for world in some
        for learner in entries(scale, stage, world)
    ]
    return [cell(*run) for run in sorted(runs, key=order)]
