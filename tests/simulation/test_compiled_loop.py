"""The compiled loop: it lowers for a GPU, hyperparameters do not recompile it, and cutting a run changes no bit."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cpdpo_jax.kernels import cpu_acceleration
from cpdpo_jax.learners import Info, Learner, NoHyperparameters, base, cpd_oppo, cpdpo, fixed
from cpdpo_jax.learners.estimates import empty, observe
from cpdpo_jax.simulation import compiled_loop, rollout
from tests.support import lanes_for, random_cmdp


def lanes(states=3, **changed):
    cmdp = random_cmdp(3, states, 2, 2, seed=5)
    return lanes_for(
        cpdpo.LEARNER, cmdp, episodes=1000, preset="tuned", rho=0.5, dtype=np.float32, n_lanes=32, **changed
    )


@pytest.mark.parametrize("states", [3, 9])  # 9: on a CPU this is where the compiled kernels take over
def test_the_loop_lowers_for_cuda(states):
    """Lowering only: there is no GPU here."""
    given = lanes(states)
    traced = compiled_loop.advance_whole  # pyright: ignore[reportAttributeAccessIssue]
    loop = partial(traced, cpdpo.LEARNER, "bernoulli")
    with cpu_acceleration(False):
        exported = jax.export.export(jax.jit(loop), platforms=["cuda"])(
            given, compiled_loop.begin(cpdpo.LEARNER, given), jnp.int32(0), jnp.int32(10)
        )
    assert exported.platforms == ("cuda",)
    assert "cpdpo_jax_" not in exported.mlir_module()


def sums_and_sorts(problem, hyper, state, policy, trajectory):
    """An update with operations that XLA's CPU compiler has no code for inside one function."""
    mixed = jnp.einsum("lsab,lsab->b", policy, policy) + jnp.sort(trajectory.reward, axis=0).sum(axis=0)
    return state + mixed, Info(0 * problem.threshold, 0 * trajectory.state[0])


def test_a_learner_of_any_operations_runs():
    """Where the loop can not be one function it runs in pieces."""
    learner = Learner(
        name="sums_and_sorts",
        hyperparameters=fixed.UNIFORM.hyperparameters,
        init=lambda problem, hyper: jnp.zeros(problem.threshold.shape[1], problem.threshold.dtype),
        policy=fixed.UNIFORM.policy,
        update=sums_and_sorts,
    )
    given = lanes()._replace(hyper=())
    run = compiled_loop.advance(learner, "bernoulli", given, compiled_loop.begin(learner, given), 0, 20)
    assert np.isfinite(run.learner).all()
    assert (np.asarray(run.learner) > 0).all()


def test_hyperparameters_and_bounds_do_not_recompile():
    """The update is traced once, whatever the settings and the episodes; another shape would be a second time."""
    learner = replace(cpdpo.LEARNER, name="traced once", update=chex.assert_max_traces(cpdpo.LEARNER.update, n=1))
    given, other, wider = lanes(), lanes(learning_rate=0.5, dual_cap=2.0), lanes(states=4)
    run = compiled_loop.advance(learner, "bernoulli", given, compiled_loop.begin(learner, given), 0, 10)
    compiled_loop.advance(learner, "bernoulli", given, run, 10, 12)
    compiled_loop.advance(learner, "bernoulli", other, compiled_loop.begin(learner, other), 0, 7)
    with pytest.raises(AssertionError, match="traced > 1 times"):
        compiled_loop.advance(learner, "bernoulli", wider, compiled_loop.begin(learner, wider), 0, 7)


def test_cutting_a_run_changes_no_bit():
    given = lanes()
    whole = compiled_loop.advance(cpdpo.LEARNER, "bernoulli", given, compiled_loop.begin(cpdpo.LEARNER, given), 0, 300)
    parts = compiled_loop.begin(cpdpo.LEARNER, given)
    for first, last in ((0, 1), (1, 128), (128, 300)):
        parts = compiled_loop.advance(cpdpo.LEARNER, "bernoulli", given, parts, first, last)
    chex.assert_trees_all_equal(whole, parts)


@pytest.mark.parametrize(("layers", "states", "actions"), [(1, 1, 1), (1, 3, 2), (2, 1, 2)])
def test_the_smallest_shapes_compile_and_run(layers, states, actions):
    """Empty and unused arrays: the loop as one function would end the process on them."""
    cmdp = random_cmdp(layers, states, actions, 1, seed=5)
    given = lanes_for(cpdpo.LEARNER, cmdp, episodes=100, preset="tuned", rho=0.5, dtype=np.float32, n_lanes=32)
    run = compiled_loop.advance(cpdpo.LEARNER, "bernoulli", given, compiled_loop.begin(cpdpo.LEARNER, given), 0, 5)
    assert np.isfinite(run.sums.strong).all()


@pytest.mark.parametrize("n_lanes", [16, 32, 64])
def test_the_loop_of_cpdpo_is_compiled_as_one_function(n_lanes, monkeypatch):
    """Without the way out for what XLA has no code for: a fused reduction would need it at 64 lanes, and be slower."""
    learner, cmdp = replace(cpdpo.LEARNER, name="whole"), random_cmdp(5, 5, 3, 2, seed=5)
    given = lanes_for(learner, cmdp, episodes=1000, preset="tuned", rho=0.5, dtype=np.float32, n_lanes=n_lanes)
    state, program = compiled_loop.begin(learner, given), compiled_loop.program(given)
    monkeypatch.setattr(program, "_otherwise", None)
    assert "xla_cpu_small_call" in program.lower(learner, "bernoulli", given, state, 0, 1).as_text()
    run = compiled_loop.advance(learner, "bernoulli", given, state, 0, 3)
    assert (np.asarray(run.played.first_improper) == -1).all()


@pytest.mark.parametrize("learner", [cpdpo.LEARNER, cpd_oppo.LEARNER], ids=lambda one: one.name)
@pytest.mark.parametrize("states", [3, 9])
def test_sums_of_ones_are_the_same_without_care(learner, states):
    """A carry that is always 0 is left out: not a bit is another, and a run of more than 2^24 episodes has it."""
    cmdp = random_cmdp(3, states, 2, 2, seed=5)
    given = lanes_for(learner, cmdp, episodes=1000, preset="tuned", rho=0.5, dtype=np.float32, n_lanes=32)
    plain = compiled_loop.advance(learner, "bernoulli", given, compiled_loop.begin(learner, given), 0, 200)
    careful = compiled_loop.advance(learner, rollout.LONG, given, compiled_loop.begin(learner, given), 0, 200)
    chex.assert_trees_all_equal(plain, careful)
    assert (np.asarray(plain.learner.estimates.payoff_carry) == 0).all()
    assert rollout.summed("bernoulli", 2**24) == "bernoulli"
    assert rollout.summed("bernoulli", 2**24 + 1) == rollout.LONG
    assert rollout.summed("beta", 2**30) == "beta"


def test_after_2_to_the_24_ones_the_next_is_not_lost():
    """float32 knows no 2^24 + 1: what the sum loses is in its carry."""
    given = lanes()
    state = compiled_loop.begin(cpdpo.LEARNER, given)
    full = jnp.full_like(state.learner.estimates.payoff_sum, 2**24)
    estimates = state.learner.estimates._replace(payoff_sum=full)
    state = state._replace(learner=state.learner._replace(estimates=estimates))
    after = compiled_loop.advance(cpdpo.LEARNER, "bernoulli", given, state, 2**24, 2**24 + 40).learner.estimates
    got = np.asarray(after.payoff_sum, np.float64) - 2**24 - np.asarray(after.payoff_carry, np.float64)
    assert got.sum() > 1000
    assert (got == np.round(got)).all()


def test_payoffs_that_a_learner_has_made_itself_are_added_with_care():
    """Tenths are no ones, whatever the CMDP's noise is."""

    def update(problem, hyper, state, policy, trajectory):
        return observe(state, trajectory._replace(reward=0.1 * trajectory.reward)), Info(
            0 * problem.threshold, 0 * trajectory.state[0]
        )

    learner = Learner("tenths", lambda *_: NoHyperparameters(), lambda problem, _: empty(problem), uniform_play, update)
    cmdp = random_cmdp(3, 3, 2, 2, seed=5)
    given = lanes_for(learner, cmdp, episodes=1000, preset="tuned", rho=0.5, dtype=np.float32, n_lanes=32)
    run = compiled_loop.advance(learner, "bernoulli", given, compiled_loop.begin(learner, given), 0, 300)
    assert (np.asarray(run.learner.payoff_carry[0]) != 0).any()


def uniform_play(problem, hyper, state):
    return base.uniform_policy(problem.action_mask, problem.threshold.dtype)
