"""Claims of README and docs that contain a number: each is a row with its number, command and data."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

from experiments import common, stored


class Claim(NamedTuple):
    """A sentence, and the cell of a stored table that supports it."""

    text: str
    experiment: str
    table: str
    row: tuple[str, ...]  # the first cells of the row
    column: str


RANKS, OTHERS = "all_ranks", "all_ranks_other_families"
SUM, RATIO = "mean rank by sum", "mean ratio to the best"
CLAIMS = [
    Claim("Suite: mean rank of `cpd_oppo` by regret + violation", "suite", RANKS, ("cpd_oppo",), SUM),
    Claim(
        "Suite: mean rank of `cpd_oppo_free`, which is given neither rho nor T", "suite", RANKS, ("cpd_oppo_free",), SUM
    ),
    Claim("Suite: mean rank of `uopt_rpgpd`", "suite", RANKS, ("uopt_rpgpd",), SUM),
    Claim("Suite: mean rank of `optprimaldual`", "suite", RANKS, ("optprimaldual",), SUM),
    Claim("Suite: mean rank of `cpdpo`", "suite", RANKS, ("cpdpo",), SUM),
    Claim("Suite without the tuning families: mean rank of `cpd_oppo`", "suite", OTHERS, ("cpd_oppo",), SUM),
    Claim("Suite without the tuning families: mean rank of `cpd_oppo_free`", "suite", OTHERS, ("cpd_oppo_free",), SUM),
    Claim("Suite: regret + violation of `cpd_oppo`, divided by the best's", "suite", RANKS, ("cpd_oppo",), RATIO),
    Claim(
        "Suite: regret + violation of `cpd_oppo_free`, divided by the best's", "suite", RANKS, ("cpd_oppo_free",), RATIO
    ),
]
for _metric in ("regret", "violation"):
    CLAIMS += [
        Claim(
            f"Growth: exponent of `{learner}`'s strong {_metric}, {m} constraint{'s' * (m > 1)}",
            "growth", f"constraints_{m}", (learner, f"strong {_metric}"), "overall",
        )
        for learner in ("cpd_oppo", "cpd_oppo_free", "cpdpo") for m in (1, 2)
    ]  # fmt: skip
    CLAIMS += [
        Claim(
            f"Slater: exponent of 1/rho in `{learner}`'s strong {_metric}",
            "slater", "known", (learner, f"strong {_metric}"), "exponent of 1/rho",
        )
        for learner in ("cpd_oppo", "cpd_oppo_free", "cpdpo", "optprimaldual")
    ]  # fmt: skip
CLAIMS += [
    Claim(
        f"Cancellation on `hard`: {_metric} violation of `{learner}`, the sum over the run",
        "cancellation", "hard", (learner, "violation"), _metric,
    )
    for learner in ("cpd_oppo", "optprimaldual") for _metric in ("strong", "weak")
]  # fmt: skip
CLAIMS += [
    Claim(f"Ablation: {text}, {m} constraint{'s' * (m > 1)}", "ablation", f"constraints_{m}", row, "regret / tuned's")
    for text, row in (
        (
            "regret with PO-DB in place of the full-information step, divided by the preset's",
            ("PO-DB for full information (cpdpo)",),
        ),
        ("regret with the theory's rate, divided by the preset's", ("rate", "1 (theory)")),
    )
    for m in (1, 2)
]
CLAIMS += [
    Claim(
        f"Theory: seeds in which the event `{event}` of `{learner}` failed",
        "theory",
        f"{learner}_events",
        ("theory", event),
        "seeds with a failure",
    )
    for learner in ("cpdpo", "cpd_oppo")
    for event in ("reward", "cost", "transition")
]
CLAIMS += [
    Claim(
        f"Cost: microseconds per episode and seed of `{learner}`, five states per layer",
        "cost",
        "states",
        (learner,),
        "S = 5",
    )
    for learner in ("cpdpo", "cpd_oppo", "optcmdp")
]


def _number(claim: Claim, content: stored.Stored | None) -> str | None:
    """The cell that supports a claim; None: it was not run."""
    table = content["tables"].get(claim.table) if content else None
    if table is None or not stored.has(table, list(claim.row), claim.column):
        return None
    return stored.cell(table, list(claim.row), claim.column)


def table(root: Path = stored.ROOT) -> str:
    """All claims in Markdown; a claim whose table is not stored says so."""
    rows = [["claim", "number and 95 % interval", "scale", "command", "data"]]
    read = functools.cache(functools.partial(stored.read, root=root))
    for claim in CLAIMS:
        content = read(claim.experiment)
        number = _number(claim, content)
        if content is None or number is None:
            rows.append([claim.text, "not run", "", f"`python -m experiments.reproduce {claim.experiment}`", ""])
            continue
        scale = content["scale"]
        command = f"`python -m experiments.reproduce {claim.experiment} --scale {scale}`"
        data = f"`experiments/{claim.experiment}/results/{scale}.json`, {claim.table}"
        rows.append([claim.text, number, scale, command, data])
    return common.markdown(rows)
