"""`check` finds nothing wrong with the project's learners and says in a sentence what is wrong with broken ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax import kernels
from cpdpo_jax.learners import Info, Learner, base, fixed
from cpdpo_jax.simulation import randomness


def update(problem: Any, hyper: Any, state: Any, policy: Any, trajectory: Any) -> tuple[Any, Info]:
    return state + 1, Info(0 * problem.threshold, 0 * trajectory.state[0])


SOUND = Learner(
    name="sound",
    hyperparameters=lambda problem, preset: base.NoHyperparameters(),
    init=lambda problem, hyper: 0 * problem.threshold,
    policy=fixed.UNIFORM.policy,
    update=update,
)


class Rate(NamedTuple):
    """One hyperparameter."""

    rate: Any


BROKEN = {
    "`hyperparameters` returns a dict": replace(SOUND, hyperparameters=lambda problem, preset: {}),
    "hyperparameter rate of 'tuned' has shape ()": replace(SOUND, hyperparameters=lambda problem, preset: Rate(1.0)),
    "hyperparameter rate of 'tuned' is -1": replace(
        SOUND, hyperparameters=lambda problem, preset: Rate(-np.ones_like(problem.delta))
    ),
    "`init` returns a state with an array of shape (3,)": replace(SOUND, init=lambda problem, hyper: jnp.zeros(3)),
    "`policy` returns float32[3, 3, 4] instead of float32[3, 3, 2, 4]": replace(
        SOUND, policy=lambda *given: fixed.UNIFORM.policy(*given)[:, :, 0]
    ),
    "`update` returns an array; return (state, Info": replace(SOUND, update=lambda *given: given[2]),
    "`update` returns a state with int32[2, 4] instead of float32[2, 4]": replace(
        SOUND, update=lambda *given: (given[2].astype(jnp.int32), update(*given)[1])
    ),
    "`update` returns Info with multipliers of float32[4]": replace(
        SOUND, update=lambda *given: (given[2], update(*given)[1]._replace(multipliers=given[0].delta))
    ),
    "it needs the value of an array during compilation": replace(
        SOUND, update=lambda *given: update(*given) if given[2].sum() > 0 else (given[2], update(*given)[1])
    ),
    "its probabilities in a state sum to 0.5 instead of 1": replace(
        SOUND, policy=lambda *given: 0.5 * fixed.UNIFORM.policy(*given)
    ),
    "it plays an action that problem.action_mask does not allow": replace(
        SOUND, policy=lambda *given: 0 * fixed.UNIFORM.policy(*given) + given[0].action_mask.any(axis=2)[:, :, None] / 2
    ),
    "it plays probabilities that are not finite, in episode 4": replace(
        SOUND, policy=lambda *given: fixed.UNIFORM.policy(*given) + jnp.where(given[2][0] > 2, jnp.nan, 0)
    ),
    "its state or its Info is not finite, in episode 1": replace(
        SOUND, update=lambda *given: (given[2] / 0, update(*given)[1])
    ),
    "depends on its neighbours": replace(
        SOUND, update=lambda *given: (given[2] + given[4].reward.sum(), update(*given)[1])
    ),
}


@pytest.mark.parametrize("said", BROKEN)
def test_what_is_wrong_is_said(said: str) -> None:
    with pytest.raises(ValueError, match="learner 'sound': ") as error:
        cp.learners.check(BROKEN[said])
    assert said in str(error.value)


@pytest.mark.parametrize("name", ["cpdpo", "cpd_oppo", "optcmdp", "uniform"])
def test_nothing_is_wrong_with_the_projects_own(name: str) -> None:
    cp.learners.check(base.get(name))


def noisy_init(problem: Any, hyper: Any, key: jax.Array) -> jax.Array:
    return kernels.uniforms(key, 0, (2,))


def noisy_update(problem: Any, hyper: Any, state: Any, policy: Any, seen: Any, key: jax.Array) -> tuple[Any, Info]:
    """Keeps what it drew in the last episode, and shows it."""
    drawn = kernels.uniforms(key, 0, (2,))
    return drawn, Info(problem.threshold * 0 + drawn[:1], 0 * seen.state[0])


NOISY = replace(SOUND, name="noisy", randomness=True, init=noisy_init, update=noisy_update)


def test_a_learner_that_draws_passes() -> None:
    cp.learners.check(NOISY)


@pytest.fixture(scope="module")
def cmdp() -> cp.CMDP:
    rng = np.random.default_rng(0)
    return cp.make_cmdp(np.full((1, 2, 2, 2), 0.5), rng.random((2, 2, 2)), rng.random((1, 2, 2, 2)), [1.5])


def drawn(cmdp: cp.CMDP, seeds: Any, **options: Any) -> np.ndarray:
    """[seed, episode]"""
    data = cp.simulate(NOISY, cmdp, episodes=40, seeds=seeds, checkpoints=40, progress=False, **options).data
    return data.multiplier.isel(learner=0, instance=0, hparams=0, constraint=0).values


def test_a_learners_own_luck_is_its_seeds_alone(cmdp: cp.CMDP) -> None:
    """The same in any batch, another one in every episode and seed, uniform, and nothing of the environment's."""
    many = drawn(cmdp, 40, block=32)
    assert len(np.unique(many)) == many.size
    assert 0.45 < many.mean() < 0.55  # 1,600 uniforms: standard error .007
    np.testing.assert_array_equal(drawn(cmdp, [39, 3]), many[[39, 3]])
    assert not np.array_equal(drawn(cmdp, 1, key=1), many[:1])
    plain, noisy = (
        cp.simulate(tested, cmdp, episodes=40, seeds=4, progress=False).data.weak_regret
        for tested in (fixed.UNIFORM, NOISY)
    )
    np.testing.assert_array_equal(plain.values, noisy.values)


def test_a_learner_on_the_host_draws_too(cmdp: cp.CMDP) -> None:
    host = replace(
        NOISY,
        compiled=False,
        init=lambda problem, hyper, key: np.random.Generator(np.random.Philox(key.astype(np.uint64))).random(1),
        policy=lambda problem, hyper, state: problem.action_mask / 2,
        update=lambda problem, hyper, state, policy, seen, key: (
            state,
            Info(key[:1] / 2.0**32, np.zeros((), np.int32), np.zeros((), np.int32)),
        ),
    )
    shown = cp.simulate(host, cmdp, episodes=5, seeds=3, checkpoints=5, progress=False).data.multiplier.values
    assert len(np.unique(shown)) == 15
    keys = randomness.lane_keys(0, np.zeros(3, int), np.arange(3))
    there = np.asarray(randomness.update_key(jnp.asarray(keys), 4))[0] / 2.0**32  # the device's are the same
    np.testing.assert_array_equal(shown[0, 0, 0, :, -1, 0], there)
