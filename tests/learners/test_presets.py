"""Every compiled learner with both presets: no error and finite curves.

`simulate` itself refuses values that are not finite and what is not a policy, in whatever episode. The whole grid, six
environments and three keys, is `python -m experiments.faults presets`: with 30 states per layer it takes too long here.
"""

from __future__ import annotations

import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.learners import base

SEEDS = 64
ENVIRONMENTS = ("random_episode_wise", "factored", "hard")
pytestmark = pytest.mark.optimised

COMPILED = [name for name in base.names() if base.get(name).compiled]


def stays_finite(learner: str, environment: str, episodes: int) -> None:
    """Both presets in one call."""
    cmdp = cp.envs.make(environment)
    presets = list(base.PRESETS)
    data = cp.simulate(learner, cmdp, episodes=episodes, seeds=SEEDS, hparams=presets, progress=False).data
    assert np.isfinite(data.strong_regret.isel(learner=0)).all()
    assert (data.first_non_finite <= 0).all()


@pytest.mark.parametrize("learner", ["cpdpo"])
def test_both_presets(learner: str) -> None:
    stays_finite(learner, "random_episode_wise", 1000)


@pytest.mark.exhaustive
@pytest.mark.parametrize("environment", ENVIRONMENTS)
@pytest.mark.parametrize("learner", COMPILED)
def test_both_presets_of_every_learner(learner: str, environment: str) -> None:
    stays_finite(learner, environment, 5000)


@pytest.mark.parametrize("rate", [1e4, 1e6])
def test_ghosh_with_a_large_rate(rate: float) -> None:
    """exp of differences of weights of 1e6: subtracting after the product left the largest weight off 0."""
    cmdp = cp.envs.make("random", layers=3, states=3, actions=2, constraints=1, rho=0.5)
    data = cp.simulate("ghosh", cmdp, episodes=1000, seeds=SEEDS, hparams={"policy_rate": rate}, progress=False).data
    assert np.isfinite(data.strong_regret).all()
