"""`cpdpo demo`: what it runs, and what its table shows, in words."""

from __future__ import annotations

from typing import Any

from cpdpo_jax.common.words import number

TABLE = {
    "learners": ["cpd_oppo", "cpdpo", "optprimaldual", "optdual"],
    "environments": [
        {"name": "hard"},  # the Lagrangian is flat: learners that circle hide it in their averages
        {"name": "random", "layers": 4, "states": 3, "actions": 3, "constraints": 1, "key": 7, "rho": 0.5},
    ],
}


def story(rows: list[dict[str, Any]]) -> str:
    """A sentence for every environment: whose violations cancel in the weak metric, and who is ahead by the strong.

    rows: as of `sweeps.load.rows`. Every number in the text is one of the table's, or a sum of two.
    """
    sentences = []
    places = dict.fromkeys(row["environment"] for row in rows)
    for environment in places:
        here = [
            row for row in rows if row["environment"] == environment and row["strong_violation"]["mean"] is not None
        ]
        if not here:
            continue
        family = environment.partition(":")[0]
        name = family if sum(one.partition(":")[0] == family for one in places) == 1 else environment
        hidden = max(here, key=lambda row: row["strong_violation"]["mean"] - row["weak_violation"]["mean"])
        strong, weak = (number(hidden[f"{kind}_violation"]["mean"]) for kind in ("strong", "weak"))
        best, *others = sorted(here, key=_total)
        first = ""
        if others:
            first = f"; by strong regret + strong violation {best['learner']} is first with {number(_total(best))}"
            first += f", then {others[0]['learner']} with {number(_total(others[0]))}"
        sentences.append(
            f"On {name} the violations of {hidden['learner']} add up to {strong}, and its weak violation is {weak}, "
            f"because good episodes pay for bad ones there{first}."
        )
    return "\n".join(sentences)


def _total(row: dict[str, Any]) -> float:
    return row["strong_regret"]["mean"] + row["strong_violation"]["mean"]
