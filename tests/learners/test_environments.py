"""Learners of the registry through 10^4 episodes of the small environments, compiled as shipped.

Compiling a learner for a shape takes ten times as long as running it, so not every pair is met: CPD-PO and CPD-OPPO
meet every environment, every learner meets `hard`, where multipliers are large, and two of the others, in turn, each
further environment.
"""

from __future__ import annotations

import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.learners import base

EPISODES = 10**4
SMALL = [name for name in cp.envs.names() if np.prod(cp.envs.make(name).action_mask.shape) <= 60]  # L S A
# not the yardsticks, which know the model, nor what solves a program in every episode whatever is set
LEARNERS = [name for name in base.names() if base.get(name).plays is None and name != "uob_reps"]
EVERYWHERE = ["cpd_oppo", "cpdpo"]


def pairs() -> dict[str, list[str]]:
    """Environment -> the learners that it meets."""
    others = [name for name in LEARNERS if name not in EVERYWHERE]
    further = [name for name in SMALL if name != "hard"]
    return {"hard": LEARNERS} | {
        name: [*EVERYWHERE, *(others[(2 * i + j) % len(others)] for j in range(2))] for i, name in enumerate(further)
    }


@pytest.mark.parametrize("name", SMALL)
def test_stays_finite_and_plays_policies(name: str) -> None:
    """`simulate` refuses values that are not finite and what is not a policy. LPs only when a count has doubled."""
    cmdp, learners = cp.envs.make(name), pairs()[name]
    learners = [one for one in learners if (base.get(one).most_constraints or np.inf) >= cmdp.n_constraints]
    rarely = {one: {"solve_when_doubled": 1.0} for one in learners if not base.get(one).compiled}
    hparams = rarely or "tuned"
    result = cp.simulate(learners, cmdp, episodes=EPISODES, seeds=2, checkpoints=3, hparams=hparams, progress=False)
    noise = 1e-6 * EPISODES * cmdp.n_layers
    for learner in learners:
        own = result.data.sel(learner=learner).dropna("setting", how="all", subset=["weak_regret"])
        assert own.sizes["setting"] == 1
        for metric in ("regret", "violation"):
            strong, weak = own[f"strong_{metric}"].values, own[f"weak_{metric}"].values
            assert np.isfinite(strong).all()
            assert (strong >= np.maximum(weak, 0) - noise).all()


def test_every_learner_and_every_small_environment_is_met() -> None:
    assert {"hard", "difficult", "factored", "simple", "streaming_episode_wise", "random_episode_wise"} <= set(SMALL)
    met = pairs()
    assert set(met) == set(SMALL)
    assert set(met["hard"]) == set(LEARNERS)
    assert all({*EVERYWHERE} < set(learners) for learners in met.values())
