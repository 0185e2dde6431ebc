"""What is run: the tuned CPD-PO with one thing changed at a time, and with another dual step."""

from __future__ import annotations

from typing import Any

from experiments.ablation.gradient import GRADIENT
from experiments.common import Cell

Variant = tuple[str, str, dict[str, Any]]  # what is changed, how, and the setting


def _cap(factor: str) -> dict[str, Any]:
    return {"dual_cap": factor, "loss_scale": factor}  # the loss is scaled by 2 m cap


def _payoffs(factor: Any) -> dict[str, Any]:
    return {"reward_confidence": factor, "cost_confidence": factor}


VARIANTS: list[Variant] = [
    ("tuned", "", {}),
    ("dilation", "off (1)", {"dilation": 1.0}),
    ("bonus", "off (0)", {"bonus_scale": 0.0}),
    ("bonus", "x10", {"bonus_scale": "x10"}),
    ("bonus", "1 (theory)", {"bonus_scale": 1.0}),
    ("transition confidence", "x0.1", {"transition_confidence": "x0.1"}),
    ("transition confidence", "x10", {"transition_confidence": "x10"}),
    ("transition confidence", "1 (theory)", {"transition_confidence": 1.0}),
    ("payoff confidence", "off (0)", _payoffs(0.0)),
    ("payoff confidence", "x10", _payoffs("x10")),
    ("payoff confidence", "1 (theory)", _payoffs(1.0)),
    ("exploration", "x0.1", {"exploration": "x0.1"}),
    ("exploration", "x10", {"exploration": "x10"}),
    ("exploration", "x100", {"exploration": "x100"}),
    ("multipliers' cap", "x0.1", _cap("x0.1")),
    ("multipliers' cap", "x0.4", _cap("x0.4")),
    ("multipliers' cap", "x2 (theory)", _cap("x2")),
    ("learning rate", "x0.1 (theory)", {"learning_rate": "x0.1"}),
    ("learning rate", "x3", {"learning_rate": "x3"}),
]
RATES: list[Variant] = [  # in units of cap / (L sqrt(m T)), which follows the cap
    (f"gradient dual step, rate x{rate:g}", label, {"dual_rate": f"x{factor * rate:g}", **setting})
    for rate in (0.1, 1, 10)
    for label, factor, setting in (("", 1, {}), ("cap x2 (theory)", 2, _cap("x2")))
]
CONSTRAINTS = {"tiny": (1,), "small": (1, 2), "paper": (1, 2)}


def variants(scale: str, kind: str) -> list[Variant]:
    """Of CPD-PO ("choice") or of its gradient form ("gradient")."""
    found = VARIANTS if kind == "choice" else RATES
    return found[:4] if scale == "tiny" else found


def cell(scale: str, constraints: int, kind: str) -> Cell:
    """All variants in one call; keys are not those of `experiments/tuning` (1000 and 1001)."""
    if scale == "tiny":
        sizes, instances, episodes, seeds = {"layers": 3, "states": 2, "actions": 2, "rho": 0.1}, 2, 100, 3
    else:
        sizes = {"layers": 5, "states": 5, "actions": 3, "rho": 0.5}
        instances, episodes, seeds = {"small": (3, 10**5, 8), "paper": (4, 10**6, 8)}[scale]
    environment = {"name": "random", **sizes, "constraints": constraints, "key": 2, "instances": instances}
    settings = [setting or "tuned" for _, _, setting in variants(scale, kind)]
    options = {"episodes": episodes, "seeds": seeds, "checkpoints": 20, "settings": settings}
    learner = "cpdpo" if kind == "choice" else GRADIENT.name
    return Cell(f"constraints_{constraints}-{kind}", learner, environment, options)


def cells(scale: str) -> list[Cell]:
    """Per number of constraints, both kinds."""
    return [cell(scale, m, kind) for m in CONSTRAINTS[scale] for kind in ("choice", "gradient")]
