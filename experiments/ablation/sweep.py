"""What is run: the tuned CPD-OPPO with one change at a time, with another dual step, and with PO-DB (CPD-PO)."""

from __future__ import annotations

from typing import Any

from experiments.ablation.gradient import GRADIENT
from experiments.common import Cell

Variant = tuple[str, str, dict[str, Any]]  # what is changed, how, and the hyperparameters

ADAPTIVE = {"adaptive_rate": 1.0}
VARIANTS: list[Variant] = [
    ("tuned", "", {}),
    ("rate", "x0.1", {"policy_rate": "x0.1"}),
    ("rate", "x0.3", {"policy_rate": "x0.3"}),
    ("rate", "x3", {"policy_rate": "x3"}),
    ("rate", "x10", {"policy_rate": "x10"}),
    ("rate", "1 (theory)", {"policy_rate": f"x{1 / 32}"}),  # the preset has 32 times the theory's
    ("adaptive rate", "0.3 x theory", ADAPTIVE | {"policy_rate": f"x{0.3 / 32}"}),
    ("adaptive rate", "1 (theory)", ADAPTIVE | {"policy_rate": f"x{1 / 32}"}),
    ("adaptive rate", "3 x theory", ADAPTIVE | {"policy_rate": f"x{3 / 32}"}),
    ("multipliers' cap", "x0.1", {"dual_cap": "x0.1"}),
    ("multipliers' cap", "x0.4", {"dual_cap": "x0.4"}),
    ("multipliers' cap", "x1.67 (theory)", {"dual_cap": "x1.67"}),
    ("multipliers' cap", "x10", {"dual_cap": "x10"}),
    ("transition confidence", "off (0)", {"transition_confidence": 0.0}),
    ("transition confidence", "x10", {"transition_confidence": "x10"}),
    ("transition confidence", "1 (theory)", {"transition_confidence": 1.0}),
    ("payoff confidence", "off (0)", {"payoff_confidence": 0.0}),
    ("payoff confidence", "x100", {"payoff_confidence": "x100"}),
    ("payoff confidence", "x10,000", {"payoff_confidence": "x10000"}),
    ("payoff confidence", "1 (theory)", {"payoff_confidence": 1.0}),
    ("anytime", "on", {"anytime": 1.0}),
]
RATES: list[Variant] = [  # in units of cap / (L sqrt(m T)), which follows the cap
    (f"gradient dual step, rate x{rate:g}", "", {"dual_rate": f"x{rate:g}"}) for rate in (0.1, 1, 10, 100)
]
BANDIT: list[Variant] = [("PO-DB for full information (cpdpo)", "", {})]
KINDS = {"choice": ("cpd_oppo", VARIANTS), "gradient": (GRADIENT.name, RATES), "bandit": ("cpdpo", BANDIT)}
CONSTRAINTS = {"tiny": (1,), "small": (1, 2), "paper": (1, 2)}


def variants(scale: str, kind: str) -> list[Variant]:
    """Of CPD-OPPO ("choice"), of its gradient form ("gradient"), or CPD-PO ("bandit")."""
    kinds = KINDS[kind][1]
    return kinds[:4] if scale == "tiny" else kinds


def cell(scale: str, constraints: int, kind: str) -> Cell:
    """All variants in one call; keys are not those of `experiments/tuning` (1000 and 1001)."""
    if scale == "tiny":
        sizes, instances, episodes, seeds = {"layers": 3, "states": 2, "actions": 2, "rho": 0.1}, 2, 100, 3
    else:
        sizes = {"layers": 5, "states": 5, "actions": 3, "rho": 0.5}
        instances, episodes, seeds = {"small": (4, 10**4, 8), "paper": (4, 10**5, 8)}[scale]
    environment = {"name": "random", **sizes, "constraints": constraints, "key": 2, "instances": instances}
    hparams = [choice or "tuned" for _, _, choice in variants(scale, kind)]
    options = {"episodes": episodes, "seeds": seeds, "checkpoints": 20, "hparams": hparams}
    return Cell(f"constraints_{constraints}-{kind}", KINDS[kind][0], environment, options)


def cells(scale: str) -> list[Cell]:
    """Per number of constraints, all kinds."""
    return [cell(scale, m, kind) for m in CONSTRAINTS[scale] for kind in KINDS]
