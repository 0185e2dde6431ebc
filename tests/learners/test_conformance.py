"""What every learner of the registry must do, whatever it is: shapes, types, lanes, a policy, no model, finite."""

from __future__ import annotations

import dataclasses
import inspect
from functools import cache, partial
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cpdpo_jax.common.types import CMDP, Trajectory
from cpdpo_jax.learners import base
from cpdpo_jax.learners.base import Info, Learner, Payoffs, Problem, SafePolicy
from cpdpo_jax.simulation import compiled_loop, host_loop
from tests.support import lanes_for, planned, random_cmdp, replay, replay_on_host

L, S, A, M = 3, 3, 2, 2
LANES = 4
EPISODES = 2000
HOST_EPISODES = 100  # an LP each
NAMES = [name for name in base.names() if base.get(name).plays is None]  # not the yardsticks, which know the model

COMPILED = [name for name in NAMES if base.get(name).compiled]
ON_HOST = [name for name in NAMES if not base.get(name).compiled]

every_learner = pytest.mark.parametrize("name", NAMES)
every_compiled_learner = pytest.mark.parametrize("name", COMPILED)
every_host_learner = pytest.mark.parametrize("name", ON_HOST)
every_preset = pytest.mark.parametrize("preset", base.PRESETS)


@cache
def _cmdp(n_constraints: int = M) -> CMDP:
    return random_cmdp(L, S, A, n_constraints, seed=6, masked=True)


def _constraints(learner: Learner) -> int:
    return min(M, learner.most_constraints or M)


def _lanes(learner: Learner, preset: str, n_lanes: int, dtype: Any = np.float32) -> compiled_loop.LaneInputs:
    cmdp = _cmdp(_constraints(learner))
    return lanes_for(learner, cmdp, episodes=EPISODES, preset=preset, rho=0.4, dtype=dtype, n_lanes=n_lanes)


def _draws(learner: Learner, episodes: int, n_lanes: int, dtype: Any = np.float32) -> np.ndarray:
    n_draws = 3 + _constraints(learner)
    return np.random.default_rng(21).random((episodes, L, n_draws, LANES))[..., :n_lanes].astype(dtype)


@cache
def _replayer(name: str) -> Any:
    return jax.jit(partial(replay, base.get(name), "bernoulli"))


def _assert_distribution(policy: np.ndarray) -> None:
    """[...,L,S,A,B]: on the allowed actions of real states, 0 elsewhere."""
    mask = np.asarray(_cmdp().action_mask)[..., None]
    assert np.isfinite(policy).all()
    assert (policy >= 0).all()
    assert (np.where(mask, 0, policy) == 0).all()
    total = policy.sum(axis=-2)
    np.testing.assert_allclose(total, np.broadcast_to(mask.any(axis=2), total.shape), atol=1e-5)


@every_learner
def test_is_registered_under_its_name(name: str) -> None:
    learner = base.get(name)
    assert learner.name == name
    assert base.get(learner) is learner
    if base.source(name):
        return  # of an installed package: a name registered by hand takes precedence
    with pytest.raises(ValueError, match=name):
        base.register(Learner(name, learner.hyperparameters, learner.init, learner.policy, learner.update))


@every_learner
def test_is_handed_what_it_may_know(name: str) -> None:
    """The problem (sizes, masks, thresholds), the hyperparameters, its own state and what it saw.

    That it imports nothing that knows more is tested in `tests/test_architecture.py`.
    """
    learner = base.get(name)
    key = ["key"] * learner.randomness
    seen = ["problem", "hyper", "state", "policy", "trajectory", *key]
    given = [
        parameter
        for parameter in inspect.signature(learner.update).parameters.values()
        if parameter.kind != parameter.KEYWORD_ONLY
    ]
    assert [parameter.name for parameter in given] == seen  # keywords choose variants of a learner
    assert list(inspect.signature(learner.policy).parameters) == ["problem", "hyper", "state"]
    assert list(inspect.signature(learner.init).parameters) == ["problem", "hyper", *key]
    if learner.mixture is not None:
        assert list(inspect.signature(learner.mixture).parameters) == ["problem", "hyper", "state"]


def test_the_problem_and_a_trajectory_say_nothing_else() -> None:
    """Field by field: a new one has to be allowed here, by Section 3.3 and Algorithm 1 of the paper."""
    known = ("action_mask", "threshold", "n_states", "n_actions", "episodes", "delta", "slater_margin")
    assert Problem._fields == (*known, "safe", "payoffs")
    assert Problem._field_defaults == {"safe": None, "payoffs": Payoffs()}  # safe: only for those that declare it
    assert [field.name for field in dataclasses.fields(Payoffs)] == ["exact_sums"]  # are they 0 or 1?
    assert SafePolicy._fields == ("policy", "cost")
    assert Trajectory._fields == ("state", "action", "reward", "cost")


@every_learner
def test_only_learners_that_declare_extra_knowledge_receive_it(name: str) -> None:
    learner = base.get(name)
    assert learner.extra_knowledge in (None, base.SAFE_POLICY)
    plan = planned(name, _cmdp(_constraints(learner)), episodes=9, seeds=1).learners[0]
    assert (plan.problems[0].safe is not None) == (learner.extra_knowledge == base.SAFE_POLICY)


def test_the_paper_s_learners_declare_no_extra_knowledge() -> None:
    """The negative control of the test above: a declaration that is never made, or made by all, would satisfy it."""
    declared = {name: base.get(name).extra_knowledge for name in ("cpdpo", "cpd_oppo", "dope")}
    assert declared == {"cpdpo": None, "cpd_oppo": None, "dope": base.SAFE_POLICY}


@every_learner
@every_preset
def test_hyperparameters_are_one_finite_number_per_lane(name: str, preset: str) -> None:
    learner = base.get(name)
    problem = jax.tree.map(np.asarray, _lanes(learner, preset, LANES).problem)
    hyper = learner.hyperparameters(problem, preset)
    assert hasattr(hyper, "_fields")
    for field, value in hyper._asdict().items():
        assert np.shape(value) == (LANES,), field
        assert np.isfinite(value).all(), field
        assert (np.asarray(value) >= 0).all(), field


@every_compiled_learner
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_shapes_and_types(name: str, dtype: str) -> None:
    """Traced only: `update` returns a state of the same structure, shapes and types, so that it can be scanned."""
    learner = base.get(name)
    with jax.enable_x64(dtype == "float64"):
        lanes = _lanes(learner, "tuned", LANES, dtype)
        before = jax.eval_shape(learner.init, lanes.problem, lanes.hyper)
        policy = jax.eval_shape(learner.policy, lanes.problem, lanes.hyper, before)
        assert (policy.shape, policy.dtype) == ((L, S, A, LANES), dtype)
        whole = jax.ShapeDtypeStruct((L, LANES), jnp.int32)
        trajectory = Trajectory(
            state=whole,
            action=whole,
            reward=jax.ShapeDtypeStruct((L, LANES), dtype),
            cost=jax.ShapeDtypeStruct((_constraints(learner), L, LANES), dtype),
        )
        after, info = jax.eval_shape(learner.update, lanes.problem, lanes.hyper, before, policy, trajectory)
    chex.assert_trees_all_equal_shapes_and_dtypes(after, before)
    chex.assert_tree_shape_suffix(before, (LANES,))  # lanes trail everywhere
    assert isinstance(info, Info)
    assert (info.multipliers.shape, info.multipliers.dtype) == ((_constraints(learner), LANES), dtype)
    assert (info.epochs.shape, info.epochs.dtype) == ((LANES,), np.int32)


@every_host_learner
def test_shapes_and_types_on_the_host(x64: None, name: str) -> None:
    """One lane, float64: `update` leaves its arguments alone, and returns a state of the same kind, to be stored."""
    learner = base.get(name)
    lanes = host_loop.select_lane(_lanes(learner, "tuned", 1, np.float64), 0)
    before = host_loop.init_learner(learner, lanes, 0)
    kept = jax.tree.map(np.array, before)
    policy = learner.policy(lanes.problem, lanes.hyper, before)
    assert (policy.shape, policy.dtype) == ((L, S, A), np.float64)
    seen = host_loop.rollout(lanes.model, policy, _draws(learner, 1, 1, np.float64)[0, ..., 0], "bernoulli")
    key = (np.zeros(2, np.uint32),) * learner.randomness
    after, info = learner.update(lanes.problem, lanes.hyper, before, policy, seen, *key)
    chex.assert_trees_all_equal_shapes_and_dtypes(after, before)
    chex.assert_trees_all_equal(before, kept)
    assert (info.multipliers.shape, info.multipliers.dtype) == ((M,), np.float64)
    for count in (info.epochs, info.infeasible):
        assert (count.shape, count.dtype) == ((), np.int32)


@every_compiled_learner
def test_lanes_one_by_one_and_step_by_step_equal_the_batch(x64: None, name: str) -> None:
    """`update`, compiled by itself for one lane, on what each lane of a scanned batch of different hparams saw."""
    learner, n = base.get(name), 40
    lanes, draws = _lanes(learner, "tuned", LANES, np.float64), _draws(learner, n, LANES, np.float64)
    factor = jnp.linspace(0.5, 1.5, LANES)
    lanes = lanes._replace(hyper=jax.tree.map(lambda a: a * factor, lanes.hyper))
    _, together, _ = jax.tree.map(np.asarray, _replayer(name)(lanes, draws))

    def step(problem: Problem, hyper: Any, state: Any, trajectory: Trajectory) -> Any:
        policy = learner.policy(problem, hyper, state)
        return policy, learner.update(problem, hyper, state, policy, trajectory)

    compiled = jax.jit(step)
    for b in range(LANES):
        problem, hyper = jax.tree.map(lambda a, b=b: a[..., b : b + 1], (lanes.problem, lanes.hyper))
        state = learner.init(problem, hyper)
        for t in range(n):
            seen = jax.tree.map(lambda a, t=t, b=b: a[t, ..., b : b + 1], together.trajectory)
            policy, (state, info) = compiled(problem, hyper, state, seen)
            np.testing.assert_allclose(policy[..., 0], together.policy[t, ..., b], atol=1e-9)
            np.testing.assert_allclose(info.multipliers[:, 0], together.info.multipliers[t, :, b], atol=1e-9)


@every_learner
@every_preset
def test_plays_distributions_and_stays_finite(name: str, preset: str) -> None:
    """2,000 episodes on a masked CMDP in float32 (fewer on the host); only allowed actions are ever played."""
    learner = base.get(name)
    if not learner.compiled:
        with jax.enable_x64(True):
            lanes = _lanes(learner, preset, LANES, np.float64)
            state, episodes = replay_on_host(learner, "bernoulli", lanes, _draws(learner, HOST_EPISODES, LANES))
    else:
        lanes, draws = _lanes(learner, preset, LANES), _draws(learner, EPISODES, LANES)
        state, episodes, _ = _replayer(name)(lanes, draws)
    _assert_distribution(np.asarray(episodes.policy))
    chex.assert_tree_all_finite((state, episodes))
    assert (np.asarray(episodes.info.multipliers) >= 0).all()
    x, a = np.asarray(episodes.trajectory.state), np.asarray(episodes.trajectory.action)
    assert np.asarray(_cmdp().action_mask)[np.arange(L)[None, :, None], x, a].all()


@every_learner
def test_first_policy_prefers_nothing(name: str) -> None:
    """With nothing seen all actions tie: a learner plays uniformly, or the first allowed action everywhere, or the safe
    policy that it received. A mixture draws one of these for each lane.
    """
    learner = base.get(name)
    lanes = _lanes(learner, "tuned", LANES)
    if not learner.compiled:
        first = host_loop.policy(learner, lanes, host_loop.begin(learner, "bernoulli", lanes).learner)
    else:
        first = learner.policy(lanes.problem, lanes.hyper, learner.init(lanes.problem, lanes.hyper))
    first, mask = np.asarray(first), np.asarray(lanes.problem.action_mask)
    uniform = np.asarray(base.uniform_policy(jnp.asarray(mask), np.float32))
    allowed = [uniform, (mask & (np.cumsum(mask, axis=2) == 1)).astype(np.float32)]
    if lanes.problem.safe is not None:
        allowed.append(np.asarray(lanes.problem.safe.policy))
    distances = np.array([np.abs(first - policy).max(axis=(0, 1, 2)) for policy in allowed])  # [policies, lanes]
    assert (distances.min(axis=0) < 1e-6).all()
    if learner.mixture is None:  # the same choice in every lane
        assert (distances < 1e-6).all(axis=1).any()
