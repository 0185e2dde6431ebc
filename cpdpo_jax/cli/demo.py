"""`cpdpo demo`: its sweep, and an explanation of its table."""

from __future__ import annotations

from typing import Any

from cpdpo_jax.common.text import format_number

TABLE = {
    "learners": ["cpd_oppo", "cpdpo", "optprimaldual", "optdual"],
    "environments": [
        {"name": "hard"},  # the Lagrangian is flat: policies cycle, and averages hide it
        {"name": "random", "layers": 4, "states": 3, "actions": 3, "constraints": 1, "key": 7, "rho": 0.5},
    ],
}


def story(rows: list[dict[str, Any]]) -> str:
    """One sentence per environment: which learner's violations cancel most, and which is best by the strong metrics.

    rows: from `sweeps.load.rows`. Every number in the text is a number of the table or the sum of two.
    """
    sentences = []
    families = [environment.partition(":")[0] for environment in dict.fromkeys(row["environment"] for row in rows)]
    for environment in dict.fromkeys(row["environment"] for row in rows):
        finite = [
            row for row in rows if row["environment"] == environment and row["strong_violation"]["mean"] is not None
        ]
        if not finite:
            continue
        family = environment.partition(":")[0]
        name = family if families.count(family) == 1 else environment
        hidden = max(finite, key=lambda row: row["strong_violation"]["mean"] - row["weak_violation"]["mean"])
        strong, weak = (format_number(hidden[f"{kind}_violation"]["mean"]) for kind in ("strong", "weak"))
        best, *others = sorted(finite, key=_total)
        first = ""
        if others:
            first = (
                f"; by strong regret + strong violation {best['learner']} is first with {format_number(_total(best))}"
            )
            first += f", then {others[0]['learner']} with {format_number(_total(others[0]))}"
        sentences.append(
            f"On {name} the violations of {hidden['learner']} add up to {strong}, but its weak violation is {weak}, "
            f"because good episodes offset bad ones{first}."
        )
    return "\n".join(sentences)


def _total(row: dict[str, Any]) -> float:
    return row["strong_regret"]["mean"] + row["strong_violation"]["mean"]
