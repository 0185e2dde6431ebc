"""What is run: the theory's exact constants, with the monitor on, and at several T to see where learning begins."""

from __future__ import annotations

from experiments.common import Cell
from experiments.theory import free

LOGARITHMS = {
    "cpdpo": ("reward_confidence", "cost_confidence", "transition_confidence"),
    "cpd_oppo": ("payoff_confidence", "transition_confidence"),
}
BROKEN = {name: {of: "x0.001" for of in some} for name, some in LOGARITHMS.items()}  # the monitor must see these fail
DELTA = 0.05
SIZES = {"name": "random", "layers": 5, "states": 5, "actions": 3, "rho": 0.5, "key": 1}
TINY = {"name": "random", "layers": 3, "states": 2, "actions": 2, "rho": 0.1, "key": 2}
CONSTRAINTS = {"tiny": (1,), "small": (1, 2), "paper": (1, 2)}
TIMES = {"tiny": (50, 100), "small": (10**4, 10**5), "paper": (10**4, 10**5, 10**6, 10**7)}
SEEDS = {"tiny": 3, "small": 32, "paper": 64}


def watched(scale: str, learner: str) -> Cell:
    """The monitor on, with the exact constants and with broken ones."""
    episodes, seeds = {"tiny": (30, 3), "small": (20_000, 200), "paper": (200_000, 200)}[scale]
    options = {
        "episodes": episodes, "seeds": seeds, "checkpoints": 20, "monitor": True, "delta": DELTA,
        "hparams": ["theory", {"preset": "theory", **BROKEN[learner]}],
    }  # fmt: skip
    environment = (TINY if scale == "tiny" else SIZES) | {"constraints": CONSTRAINTS[scale][-1]}
    return Cell(f"watched-{learner}", learner, environment, options)


def learning(scale: str, constraints: int, learner: str, episodes: int) -> Cell:
    """One T; uniform play has the same policy in every episode, so ten episodes suffice."""
    environment = (TINY if scale == "tiny" else SIZES) | {"constraints": constraints}
    options = {"episodes": episodes, "seeds": SEEDS[scale], "checkpoints": 20, "hparams": "theory", "delta": DELTA}
    if learner == "uniform":
        options |= {"episodes": 10, "seeds": 1}
    return Cell(f"constraints_{constraints}-{learner}-{options['episodes']}", learner, environment, options)


def cells(scale: str) -> list[Cell]:
    """The watched ones, then by T, then those of the learnt cap."""
    found = [watched(scale, learner) for learner in LOGARITHMS]
    found += [learning(scale, m, "uniform", 10) for m in CONSTRAINTS[scale]]
    found += [
        learning(scale, m, learner, t) for t in TIMES[scale] for m in CONSTRAINTS[scale] for learner in LOGARITHMS
    ]
    return found + free.cells(scale)
