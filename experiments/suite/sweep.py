"""What is run: every learner on every environment; those that solve linear programs for fewer episodes.

A learner joins when it is registered. Two stages: "all" has the learners without linear programs at the environment's
own T; "short" has all of them at a T that the linear programs can afford, each with its constants for that T.
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
SLOW = {"media_streaming": 20_000, "garnet": 20_000, "cliff": 500}  # T at paper scale: 10 and more states to a layer
HARD = {"name": "hard", "share": 0.3}  # at the default share of 0.5 uniform play is optimal
RANDOM = {"name": "random", "layers": 5, "states": 5, "actions": 3, "constraints": 2, "rho": 0.5, "key": 1}
TOO_LARGE = {"random_uniform_pac": 10**4, "grid_three_constraints": 10**4}  # for `BONUS`; T of the others
LEFT_OUT = ("mars_rover", "box")  # 30 layers of 60 states and more: even `uniform` compiles for over a minute


class World(NamedTuple):
    """An environment, how long it is run, and whether learners of `BONUS` are left out."""

    label: str
    environment: dict[str, Any]
    episodes: int
    without_bonus: bool = False


def worlds(scale: str) -> list[World]:
    """At paper scale all but `LEFT_OUT` and `small_rho`, which is a batch (see `experiments/slater`)."""
    if scale == "tiny":
        return [World("hard", HARD | {"layers": 2}, 100), World("difficult", {"name": "difficult"}, 50)]
    long = 10**4 if scale == "small" else 10**5
    slow = {} if scale == "small" else SLOW
    found = [World("random", RANDOM, long), World("hard", HARD, long)]
    found += [World(name, {"name": name}, slow.get(name, long)) for name in QUICK]
    if scale == "paper":
        found += [World(name, {"name": name}, slow.get(name, long)) for name in (*MORE, "cliff")]
        found += [World(name, {"name": name}, t, without_bonus=True) for name, t in TOO_LARGE.items()]
    return found


def seeds(scale: str, stage: str) -> int:
    return (
        {"tiny": 3, "small": 64, "paper": 64}[scale] if stage == "all" else {"tiny": 2, "small": 4, "paper": 16}[scale]
    )


def short(scale: str) -> int:
    """T of the second stage."""
    return {"tiny": 4, "small": 300, "paper": 5000}[scale]


def entries(scale: str, stage: str, world: World) -> list[str]:
    """The labels that are run, in the order of the table."""
    known = cp.learners.names()
    return [
        label
        for label, (learner, _) in ENTRIES.items()
        if learner in known
        and (scale != "tiny" or label in TINY)
        and not (stage == "all" and label in PROGRAMS)
        and not (world.without_bonus and label in BONUS)
    ]


def stages(scale: str) -> dict[str, list[World]]:
    """The second one only if a learner needs it, on the environments small enough for it."""
    everywhere = worlds(scale)
    if not set(PROGRAMS) & set(cp.learners.names()):
        return {"all": everywhere}
    small = [
        world._replace(episodes=short(scale))
        for world in everywhere
        if world.label in ("random", "hard", *QUICK, *MORE)
    ]
    return {"all": everywhere, "short": small}


def cell(scale: str, stage: str, world: World, label: str) -> Cell:
    """One entry on one environment."""
    learner, hparams = ENTRIES[label]
    options = {"episodes": world.episodes, "seeds": seeds(scale, stage), "checkpoints": 20, "hparams": hparams}
    return Cell(f"{stage}-{world.label}-{label}", (learner,), world.environment, options)


def cells(scale: str) -> list[Cell]:
    """Environment by environment."""
    return [
        cell(scale, stage, world, label)
        for stage, some in stages(scale).items()
        for world in some
        for label in entries(scale, stage, world)
    ]
