"""What is run: every learner, tuned, on three environments; those that solve linear programs for fewer episodes."""

from __future__ import annotations

from typing import Any

from experiments.common import Cell
from experiments.rivals import notebook

PROGRAMS = ("optcmdp", "optcmdp_bonus")  # a linear program per episode
LEARNERS = (
    "cpd_oppo", "cpdpo", "optprimaldual", "regularized_primal_dual", "optdual", *PROGRAMS, "podb", "uniform",
    "unconstrained_optimal", "lp_optimal",
)  # fmt: skip
EPISODES = {"tiny": (60, 20), "small": (10**4, 250), "paper": (10**6, 2000)}  # without and with linear programs
SEEDS = {"tiny": 2, "small": 8, "paper": 20}
SQUARE = {"name": "random", "layers": 5, "states": 5, "actions": 3, "noise": "deterministic"}
NOTEBOOK = {  # instances on which `uopt_rpgpd` and the authors' notebook are compared
    "key 0": SQUARE | {"key": 0},
    "key 1, rho 0.5": SQUARE | {"key": 1, "rho": 0.5},
    "key 2, rho 0.5": SQUARE | {"key": 2, "rho": 0.5},
}
NOTEBOOK_LEARNERS = {
    name: notebook.learner(f"notebook_{i}", environment) for i, (name, environment) in enumerate(NOTEBOOK.items())
}
NOTEBOOK_SIZES = {"tiny": (50, 2), "small": (20_000, 64), "paper": (20_000, 64)}  # episodes, seeds
VARIANTS = {  # of the notebook's program, as hparams
    "notebook": {"bounds_if_unseen": 0.0, "as_defined": 0.0},
    "notebook, unseen pairs at their bounds": {"bounds_if_unseen": 1.0, "as_defined": 0.0},
    "notebook, all as in docs/rivals.md": {"bounds_if_unseen": 1.0, "as_defined": 1.0},
}
OURS = {  # of `uopt_rpgpd`
    "uopt_rpgpd, bonus_scale = 0.001, payoffs known at a visit": {"bonus_scale": 1e-3, "payoff_confidence": 0.0},
    "uopt_rpgpd, bonus_scale = 0.001": {"bonus_scale": 1e-3},
}


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


def notebooks(scale: str) -> list[str]:
    """The instances of the comparison with the notebook; one at tiny scale."""
    return list(NOTEBOOK)[: 1 if scale == "tiny" else None]


def compared(scale: str, name: str) -> tuple[Cell, Cell]:
    """The notebook's program and `uopt_rpgpd` on one instance."""
    episodes, seeds = NOTEBOOK_SIZES[scale]
    options = {"episodes": episodes, "seeds": seeds, "checkpoints": 20, "delta": 0.1}
    ours = [{"preset": "theory", **of} for of in OURS.values()]
    label = f"notebook_{list(NOTEBOOK).index(name)}"
    return (
        Cell(label, NOTEBOOK_LEARNERS[name].name, NOTEBOOK[name], options | {"hparams": list(VARIANTS.values())}),
        Cell(f"{label}-uopt_rpgpd", "uopt_rpgpd", NOTEBOOK[name], options | {"hparams": ours}),
    )


def cells(scale: str) -> list[Cell]:
    """Environment by environment, then the notebook."""
    found = [cell(scale, name, learner) for name in environments(scale) for learner in learners(scale)]
    return found + [one for name in notebooks(scale) for one in compared(scale, name)]
