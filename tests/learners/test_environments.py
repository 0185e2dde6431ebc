"""Learners of the registry through 10^4 episodes of the small environments, compiled as shipped.

Compiling a learner for a shape takes ten times as long as running it, so not every pair is met: CPD-PO and both forms
of CPD-OPPO meet `hard`, where multipliers are large, and CPD-OPPO three other environments. Exhaustive: every learner
meets `hard`, CPD-PO and both forms of CPD-OPPO every environment, and two of the others, in turn, each. Learners that
need a Slater policy meet only environments that have one.
"""

from __future__ import annotations

import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.learners import base

pytestmark = pytest.mark.optimised

EPISODES = 10**4
SMALL = [name for name in cp.envs.names() if np.prod(cp.envs.make(name).action_mask.shape) <= 60]  # L S A
# not the yardsticks, which know the model, nor what solves a program in every episode whatever is set
ALWAYS = ("bv_ops", "s_ops", "uob_reps")
LEARNERS = [name for name in base.names() if base.get(name).plays is None and name not in ALWAYS]
EVERYWHERE = ["cpd_oppo", "cpd_oppo_free", "cpdpo"]
SOME = ("least_cost", "factored", "random_episode_wise")


def can_run(learner: str, name: str) -> bool:
    """Whether the learner needs no Slater policy, or the environment has one."""
    needs = base.get(learner).needs_slater or base.get(learner).extra_knowledge
    return not needs or float(np.min(cp.solve(cp.envs.make(name)).slater_margin)) > 1e-9


def pairs() -> dict[str, list[str]]:
    """Environment -> the learners that it meets."""
    others = [name for name in LEARNERS if name not in EVERYWHERE]
    further = [name for name in SMALL if name != "hard"]
    met = {
        name: [*EVERYWHERE, *(others[(2 * i + j) % len(others)] for j in range(2))] for i, name in enumerate(further)
    }
    return {"hard": LEARNERS} | {
        name: [candidate for candidate in some if can_run(candidate, name)] for name, some in met.items()
    }


@pytest.mark.parametrize(
    ("name", "learners"),
    [
        pytest.param("hard", EVERYWHERE, id="hard"),
        *(pytest.param(name, pairs()[name][:1], id=name) for name in SOME),
        *(
            pytest.param(name, learners, id=f"{name}-several", marks=pytest.mark.exhaustive)
            for name, learners in pairs().items()
        ),
    ],
)
def test_stays_finite_and_plays_policies(name: str, learners: list[str]) -> None:
    """`simulate` refuses values that are not finite and what is not a policy. LPs only when a count has doubled."""
    cmdp = cp.envs.make(name)
    learners = [
        candidate for candidate in learners if (base.get(candidate).most_constraints or np.inf) >= cmdp.n_constraints
    ]
    rarely = {candidate: {"solve_when_doubled": 1.0} for candidate in learners if not base.get(candidate).compiled}
    hparams = rarely or "tuned"
    result = cp.simulate(learners, cmdp, episodes=EPISODES, seeds=2, checkpoints=3, hparams=hparams, progress=False)
    noise = 1e-6 * EPISODES * cmdp.n_layers
    for learner in learners:
        own = result.data.sel(learner=learner).dropna("hparams", how="all", subset=["weak_regret"])
        assert own.sizes["hparams"] == 1
        for metric in ("regret", "violation"):
            strong, weak = own[f"strong_{metric}"].values, own[f"weak_{metric}"].values
            assert np.isfinite(strong).all()
            assert (strong >= np.maximum(weak, 0) - noise).all()


def test_every_learner_and_every_small_environment_is_met() -> None:
    assert {"hard", "difficult", "factored", "simple", "streaming_episode_wise", "random_episode_wise"} <= set(SMALL)
    met = pairs()
    assert set(met) == set(SMALL)
    assert set(met["hard"]) == set(LEARNERS)
    assert all(
        {candidate for candidate in EVERYWHERE if can_run(candidate, name)} <= set(learners)
        for name, learners in met.items()
    )
    assert "cpd_oppo_free" in met["least_cost"]
    assert "cpdpo" not in met["least_cost"]
