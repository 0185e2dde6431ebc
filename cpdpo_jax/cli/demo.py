"""`cpdpo demo`: what it runs, and what its table shows, in words."""

from __future__ import annotations

from typing import Any

TABLE = {
    "learners": ["cpd_oppo", "cpdpo", "optprimaldual", "optdual"],
    "environments": [
        {"name": "hard"},  # the Lagrangian is flat: learners that circle hide it in their averages
        {"name": "random", "layers": 4, "states": 3, "actions": 3, "constraints": 1, "key": 7, "rho": 0.5},
    ],
}


def story(rows: list[dict[str, Any]]) -> str:
    """Two sentences for every environment: whose violations cancel in the weak metric, and who is ahead by the strong.

    rows: as of `sweeps.load.rows`. Every number in the text is one of the table's.
    """
    sentences = []
    for environment in dict.fromkeys(row["environment"] for row in rows):
        here = [
            row for row in rows if row["environment"] == environment and row["strong_violation"]["mean"] is not None
        ]
        if not here:
            continue
        hidden = max(here, key=lambda row: row["strong_violation"]["mean"] - row["weak_violation"]["mean"])
        strong, weak = hidden["strong_violation"]["mean"], hidden["weak_violation"]["mean"]
        best, second = sorted(here, key=_total)[:2] if len(here) > 1 else (here[0], None)
        sentences.append(
            f"{environment}: {hidden['learner']} violates by {strong:.4g} in sum, of which its weak violation shows "
            f"{weak:.4g}: good episodes pay for bad ones there, and the strong metrics do not let them."
        )
        if second is not None:
            sentences.append(
                f"{environment}: by strong regret + strong violation {best['learner']} is first with "
                f"{_total(best):.4g}, then {second['learner']} with {_total(second):.4g}."
            )
    return "\n".join(sentences)


def _total(row: dict[str, Any]) -> float:
    return row["strong_regret"]["mean"] + row["strong_violation"]["mean"]
