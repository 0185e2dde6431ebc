"""`cpdpo demo`: its sweep, and an explanation of its table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cpdpo_jax.common.text import format_number

if TYPE_CHECKING:
    from cpdpo_jax.sweeps.load import Table

SLOW = 3.0  # explain CPD-PO's regret if it exceeds the others' by this factor

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


def slow_reward(tables: Sequence[Table]) -> str:
    """Explains the regret of CPD-PO on the environment with the largest ratio to the others; "" below `SLOW`.

    tables: from `sweeps.load.load_runs`. All numbers are from the result: regret, sizes, rho and hyperparameters.
    """
    ratios = []
    for table in tables:
        data, name = table.result.data, table.environment.partition(":")[0]
        if "cpdpo" not in data.learner or data.sizes["learner"] < 2:
            continue
        regret = table.result.metric("strong_regret").isel(episode=-1).mean(("instance", "hparams", "seed"))
        others = regret.drop_sel(learner="cpdpo")
        ratio = float(regret.sel(learner="cpdpo") / others.median())
        ratios.append((ratio, name, data.sel(learner="cpdpo").isel(instance=0, hparams=0)))
    ratio, name, data = max(ratios, key=lambda entry: entry[0], default=(0.0, "", None))
    if data is None or not SLOW < ratio < np.inf:
        return ""
    layers, m, rho = int(data.attrs["layers"]), data.sizes["constraint"], float(data.believed_slater_margin.mean())
    constant, added = (layers + 1) * m / rho, m * float(data.hyper_dual_cap.mean())
    return (
        f"On {name} the strong regret of cpdpo is {ratio:.0f} times the median of the other learners', because line 8 "
        f"of its algorithm adds a constant to every loss: (L+1)m/rho = ({layers}+1) x {m} / {format_number(rho, 2)} = "
        f"{format_number(constant, 3)} in the paper, {format_number(added, 3)} with the hparams used here. It hides "
        f"the reward of at most 1: importance weights multiply the whole loss, so the policy learns slowly from it."
    )


def _total(row: dict[str, Any]) -> float:
    return row["strong_regret"]["mean"] + row["strong_violation"]["mean"]
