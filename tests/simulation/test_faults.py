"""Faults during a run are detected, reported, and do not affect other lanes."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.learners import Info, Learner
from cpdpo_jax.learners.base import uniform_policy

EPISODES, FROM, TO = 60, 20, 30


class Fault(NamedTuple):
    """Offset and factor of the probabilities in episodes FROM+1..TO; 0 and 1 in the others."""

    added: np.ndarray
    factor: np.ndarray


def policy(problem, hyper, state):
    """Uniform, except in some episodes."""
    now = (state >= FROM) & (state < TO)
    return jnp.where(now, 1 + hyper.factor, 1) * uniform_policy(problem.action_mask, problem.threshold.dtype) + (
        jnp.where(now, hyper.added, 0)
    )


def host_policy(problem, hyper, state):
    now = FROM <= state < TO
    uniform = problem.action_mask / np.maximum(problem.action_mask.sum(axis=2, keepdims=True), 1)
    return (1 + hyper.factor if now else 1) * uniform + (hyper.added if now else 0)


FAULTY = Learner(
    name="faulty",
    hyperparameters=lambda problem, preset: Fault(0 * problem.delta, 0 * problem.delta),
    init=lambda problem, hyper: 0 * problem.delta,
    policy=policy,
    update=lambda problem, hyper, state, policy, trajectory: (
        state + 1,
        Info(0 * problem.threshold, 0 * trajectory.state[0]),
    ),
)
ON_HOST = replace(
    FAULTY,
    compiled=False,
    policy=host_policy,
    update=lambda problem, hyper, state, policy, trajectory: (
        state + np.isfinite(policy).all(),  # a lane that goes on after NaN would start again
        Info(0 * problem.threshold, np.zeros((), np.int32), np.zeros((), np.int32)),
    ),
)

both = pytest.mark.parametrize("learner", [FAULTY, ON_HOST], ids=["compiled", "host"])


@pytest.fixture(scope="module")
def cmdp() -> cp.CMDP:
    return cp.make_cmdp(
        np.full((1, 2, 2, 2), 0.5),
        np.array([[[0.2, 0.9], [0.0, 0.0]], [[0.5, 0.1], [0.3, 0.8]]]),
        np.array([[[[0.1, 0.8], [0.0, 0.0]], [[0.4, 0.2], [0.6, 0.9]]]]),
        [1.0],
        action_mask=np.array([[[True, True], [False, False]], [[True, True], [True, True]]]),
    )


def run(learner, cmdp, **hparams):
    return cp.simulate(learner, cmdp, episodes=EPISODES, seeds=3, hparams=hparams, checkpoints=6, progress=False)


@both
def test_what_is_not_a_policy_in_the_middle_of_a_run_is_refused_and_named(cmdp, learner):
    """Five times the probabilities for ten episodes; the final policy is valid."""
    where = "first in episode 21 of seed 0 on instance 'cmdp' .*factor=4"
    with pytest.raises(ValueError, match=f"'faulty' does not play a policy, {where}.* from 1 by 4"):
        run(learner, cmdp, factor=[0, 4])


@both
def test_a_probability_at_an_action_that_is_not_allowed_is_refused(cmdp, learner):
    with pytest.raises(ValueError, match=r"episode 21 of seed 0.*: .*at an action that is not allowed"):
        run(learner, cmdp, added=[0, 1e-5])


@both
def test_a_lane_that_is_not_finite_leaves_its_neighbours_alone(cmdp, learner, monkeypatch):
    """A factor that overflows in one of three hparams, which share a block."""
    healthy = run(learner, cmdp, factor=[0]).data.isel(hparams=0)
    nan = replace(learner, hyperparameters=lambda problem, preset: Fault(0 * problem.delta, 0 * problem.delta))
    monkeypatch.setattr("cpdpo_jax.learners.hparams._number", lambda name, value: float(value))  # lets NaN pass
    with pytest.raises(cp.NonFiniteError, match=r"episode 21 of seed 0 .*factor=nan.* 2 more runs") as error:
        run(nan, cmdp, factor=[0, float("nan"), 0.0001])
    data = error.value.result.data
    assert data.first_non_finite.isel(learner=0, instance=0).values.tolist() == [[0] * 3, [21] * 3, [0] * 3]
    for name in ("strong_regret", "weak_violation", "final_policy"):
        np.testing.assert_array_equal(data[name].isel(hparams=0), healthy[name])
        assert np.isfinite(data[name].isel(hparams=2)).all()
    bad = data.strong_regret.isel(learner=0, instance=0, hparams=1)
    assert np.isfinite(bad.sel(episode=slice(1, 20))).all()
    assert np.isnan(bad.sel(episode=slice(21, None))).all()
    assert np.isnan(data.final_policy.isel(hparams=1)).all()


@pytest.mark.parametrize("function", ["hyperparameters", "init", "policy", "update"])
@both
def test_the_stack_trace_of_an_error_in_a_learner_names_it(cmdp, learner, function):
    def fail(*arguments):
        raise IndexError("my message")

    mine = replace(learner, name="mine", **{function: fail})
    with pytest.raises(IndexError, match=r"The error occurred in a run of learner 'mine'\.") as caught:
        cp.simulate(["uniform", mine], cmdp, episodes=3, seeds=2)
    assert str(caught.value) == "my message"
