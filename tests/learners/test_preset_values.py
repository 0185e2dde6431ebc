"""The values of the presets on two problems are those of `preset_values.toml`, so that no preset changes unnoticed.

A new learner needs no entry; without one its presets may change freely. To record all learners, or an intended change:
python -m tests.learners.test_preset_values > tests/learners/preset_values.toml
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax import learners
from cpdpo_jax.learners import base
from cpdpo_jax.simulation import knowledge

STORED = tomllib.loads(Path(__file__).with_name("preset_values.toml").read_text())
PROBLEMS = (  # layers, states, actions, constraints; T, delta, rho, safety
    ((2, 2, 2, 1), 1000, 0.05, 0.4, 0.5),
    ((4, 3, 2, 1), 200_000, 0.01, 0.15, 0.25),
)


def values(learner: str, preset: str) -> dict[str, list[float]]:
    """The hyperparameters of a preset by name, one value per problem."""
    table: dict[str, list[float]] = {}
    for sizes, episodes, delta, rho, safety in PROBLEMS:
        names = ("layers", "states", "actions", "constraints")
        batch = cp.stack([cp.envs.make("random", key=0, rho=0.5, **dict(zip(names, sizes, strict=True)))])
        problem = base.make_problem(batch, episodes=episodes, delta=delta, slater_margin=np.array([rho]))
        if base.get(learner).extra_knowledge:
            problem = knowledge.problem_for(base.get(learner), problem, batch, cp.solve(batch), safety=safety)
        hyper = base.get(learner).hyperparameters(problem, preset)
        for name, value in hyper._asdict().items():
            table.setdefault(name, []).append(float(f"{np.asarray(value).item():.6g}"))
    return table


@pytest.mark.parametrize("preset", base.PRESETS)
@pytest.mark.parametrize("learner", sorted(STORED))
def test_a_stored_preset_is_unchanged(learner: str, preset: str) -> None:
    computed, stored = values(learner, preset), STORED[learner][preset]
    assert computed.keys() == stored.keys()
    for name, value in computed.items():
        assert value == pytest.approx(stored[name], rel=2e-5), f"{learner}, {preset}, {name}"


if __name__ == "__main__":
    for learner in sorted(learners.BUILT_IN):
        for preset in base.PRESETS:
            print(f"[{learner}.{preset}]")
            print("".join(f"{name} = {value}\n" for name, value in values(learner, preset).items()))
