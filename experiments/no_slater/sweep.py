"""What is run: the learners that accept Slater margin 0, on two environments of that kind, each T a separate run."""

from __future__ import annotations

from typing import Any, NamedTuple

from experiments.common import Cell

# Chosen for long runs among eight choices on tuning instances (see README.md): no seed gets stuck there up to T = 10^5.
WIDE = {
    "rate_scale": 4, "rate_delay": 1e4, "transition_confidence": 1e-3, "payoff_confidence": 3e-3, "rare_width": 0,
}  # fmt: skip
ENTRIES: dict[str, tuple[str, Any]] = {  # label -> learner, hparams
    "cpd_oppo_free": ("cpd_oppo_free", "tuned"),
    "cpd_oppo_free (wide)": ("cpd_oppo_free", WIDE),
    "uopt_rpgpd": ("uopt_rpgpd", "tuned"),
    "triple_q": ("triple_q", "tuned"),
}  # `ghosh` runs too, at many times the cost and for one constraint
REFUSE = ("cpd_oppo", "cpdpo", "optprimaldual", "regularized_primal_dual", "optpess_primaldual", "optdual")
ENVIRONMENTS = ("least_cost", "fixed_cost")


class Sizes(NamedTuple):
    """The sizes of a scale."""

    times: tuple[int, ...]
    keys: tuple[int, ...]  # an instance each; the tuning instances have key 1009 and another shape
    seeds: int


SCALES = {
    "tiny": Sizes((50, 200), (1,), 3),
    "small": Sizes((10**3, 10**4, 10**5), (1,), 16),
    "paper": Sizes((10**4, 10**5, 10**6), (1,), 64),
}


def cell(environment: str, key: int, label: str, episodes: int, seeds: int) -> Cell:
    """One entry on one instance at one T."""
    learner, hparams = ENTRIES[label]
    options = {"episodes": episodes, "seeds": seeds, "checkpoints": 20, "hparams": hparams}
    name = label.replace(" (wide)", "_wide")
    return Cell(f"{environment}-{key}-{name}-{episodes}", learner, {"name": environment, "key": key}, options)


def cells(scale: str) -> list[Cell]:
    """Short ones first."""
    times, keys, seeds = SCALES[scale]
    return [
        cell(environment, key, label, episodes, seeds)
        for episodes in times
        for environment in ENVIRONMENTS
        for key in keys
        for label in ENTRIES
    ]
