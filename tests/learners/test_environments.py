"""Every learner of the registry through 10^4 episodes of every small environment, compiled as shipped."""

from __future__ import annotations

import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.learners import base

EPISODES = 10**4
SMALL = [name for name in cp.envs.names() if np.prod(cp.envs.make(name).action_mask.shape) <= 60]  # L S A
LEARNERS = [name for name in base.names() if base.get(name).plays is None]  # not the yardsticks, which know the model


@pytest.mark.parametrize("name", SMALL)
def test_stays_finite_and_plays_policies(name: str) -> None:
    """`simulate` refuses values that are not finite and what is not a policy. LPs only when a count has doubled."""
    cmdp = cp.envs.make(name)
    rarely = {one: {"solve_when_doubled": 1.0} for one in LEARNERS if not base.get(one).compiled}
    result = cp.simulate(LEARNERS, cmdp, episodes=EPISODES, seeds=2, checkpoints=3, hparams=rarely, progress=False)
    noise = 1e-6 * EPISODES * cmdp.n_layers
    for learner in LEARNERS:
        own = result.data.sel(learner=learner).dropna("setting", how="all", subset=["weak_regret"])
        assert own.sizes["setting"] == 1
        for metric in ("regret", "violation"):
            strong, weak = own[f"strong_{metric}"].values, own[f"weak_{metric}"].values
            assert np.isfinite(strong).all()
            assert (strong >= np.maximum(weak, 0) - noise).all()


def test_some_are_small() -> None:
    assert {"hard", "difficult", "factored", "simple", "streaming_episode_wise", "random_episode_wise"} <= set(SMALL)
