"""The compiled loop: it lowers for a GPU, hyperparameters do not recompile it, and splitting a run changes no bit."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.common import xla_options
from cpdpo_jax.kernels import paper_forms
from cpdpo_jax.learners import Info, Learner, NoHyperparameters, base, cpd_oppo, cpdpo, fixed
from cpdpo_jax.learners.base import Payoffs
from cpdpo_jax.learners.estimates import empty, observe
from cpdpo_jax.simulation import compiled_loop
from tests.support import lanes_for, random_cmdp

ONE_FUNCTION = [("cpdpo", 16), ("cpd_oppo", 64), ("optprimaldual", 32)]


def lanes(states=3, **changed):
    cmdp = random_cmdp(3, states, 2, 2, seed=5)
    return lanes_for(
        cpdpo.LEARNER, cmdp, episodes=1000, preset="tuned", rho=0.5, dtype=np.float32, n_lanes=32, **changed
    )


@pytest.mark.parametrize("states", [3, 9])  # 9: on a CPU this is where the compiled kernels take over
def test_the_loop_lowers_for_cuda(states):
    """Lowering only: there is no GPU here."""
    given = lanes(states)
    loop = partial(compiled_loop.run_episodes, cpdpo.LEARNER, "bernoulli")
    with paper_forms():
        exported = jax.export.export(jax.jit(loop), platforms=["cuda"])(
            given, compiled_loop.begin(cpdpo.LEARNER, "bernoulli", given), jnp.int32(0), jnp.int32(10)
        )
    assert exported.platforms == ("cuda",)
    assert "cpdpo_jax_" not in exported.mlir_module()


def sums_and_sorts(problem, hyper, state, policy, trajectory):
    """An update with operations that XLA's CPU compiler does not support inside a single function."""
    mixed = jnp.einsum("lsab,lsab->b", policy, policy) + jnp.sort(trajectory.reward, axis=0).sum(axis=0)
    return state + mixed, Info(0 * problem.threshold, 0 * trajectory.state[0])


def test_a_learner_of_any_operations_runs():
    """If XLA cannot compile the loop to one function, it runs several."""
    learner = Learner(
        name="sums_and_sorts",
        hyperparameters=fixed.UNIFORM.hyperparameters,
        init=lambda problem, hyper: jnp.zeros(problem.threshold.shape[1], problem.threshold.dtype),
        policy=fixed.UNIFORM.policy,
        update=sums_and_sorts,
    )
    given = lanes()._replace(hyper=())
    run = compiled_loop.advance(learner, "bernoulli", given, compiled_loop.begin(learner, "bernoulli", given), 0, 20)
    assert np.isfinite(run.learner).all()
    assert (np.asarray(run.learner) > 0).all()


def test_hyperparameters_and_bounds_do_not_recompile():
    """The update is traced once for all hparams and episodes, and again for another shape."""
    learner = replace(cpdpo.LEARNER, name="traced once", update=chex.assert_max_traces(cpdpo.update, n=1))
    given, other, wider = lanes(), lanes(learning_rate=0.5, dual_cap=2.0), lanes(states=4)
    run = compiled_loop.advance(learner, "bernoulli", given, compiled_loop.begin(learner, "bernoulli", given), 0, 10)
    compiled_loop.advance(learner, "bernoulli", given, run, 10, 12)
    compiled_loop.advance(learner, "bernoulli", other, compiled_loop.begin(learner, "bernoulli", other), 0, 7)
    with pytest.raises(AssertionError, match="traced > 1 times"):
        compiled_loop.advance(learner, "bernoulli", wider, compiled_loop.begin(learner, "bernoulli", wider), 0, 7)


@pytest.mark.optimised
def test_cutting_a_run_changes_no_bit():
    given = lanes()
    whole = compiled_loop.advance(
        cpdpo.LEARNER, "bernoulli", given, compiled_loop.begin(cpdpo.LEARNER, "bernoulli", given), 0, 300
    )
    parts = compiled_loop.begin(cpdpo.LEARNER, "bernoulli", given)
    for first, last in ((0, 1), (1, 128), (128, 300)):
        parts = compiled_loop.advance(cpdpo.LEARNER, "bernoulli", given, parts, first, last)
    chex.assert_trees_all_equal(whole, parts)


@pytest.mark.parametrize(("layers", "states", "actions"), [(1, 1, 1), (1, 3, 2), (2, 1, 2)])
def test_the_smallest_shapes_compile_and_run(layers, states, actions):
    """Empty and unused arrays would crash the process inside a single function."""
    cmdp = random_cmdp(layers, states, actions, 1, seed=5)
    given = lanes_for(cpdpo.LEARNER, cmdp, episodes=100, preset="tuned", rho=0.5, dtype=np.float32, n_lanes=32)
    run = compiled_loop.advance(
        cpdpo.LEARNER, "bernoulli", given, compiled_loop.begin(cpdpo.LEARNER, "bernoulli", given), 0, 5
    )
    assert np.isfinite(run.sums.strong).all()


@pytest.mark.parametrize(("name", "n_lanes"), [
    pytest.param(name, n, marks=[pytest.mark.exhaustive, pytest.mark.optimised] * ((name, n) not in ONE_FUNCTION))
    for name in ("cpdpo", "cpd_oppo", "optprimaldual") for n in (16, 32, 64)
])  # fmt: skip
def test_the_loop_is_one_function_of_machine_code(name, n_lanes):
    """XLA's option is set when the package is imported: no loop is left in the compiled program's entry computation."""
    assert xla_options.describe() == "set"
    learner, cmdp = base.get(name), random_cmdp(5, 5, 3, 2, seed=5)
    given = lanes_for(learner, cmdp, episodes=1000, preset="tuned", rho=0.5, dtype=np.float32, n_lanes=n_lanes)
    state = compiled_loop.begin(learner, "bernoulli", given)
    text = compiled_loop._run.lower(learner, "bernoulli", given, state, 0, 1).compile().as_text()
    entry = text[text.index("\nENTRY") :]
    assert " while(" not in entry
    assert len(re.findall(r" call\(", entry)) == 1


@pytest.mark.optimised
@pytest.mark.parametrize(("states", "learner"), [
    pytest.param(states, learner, id=f"{states}-{learner.name}", marks=[pytest.mark.exhaustive] * more)
    for states, learner, more in (
        (3, cpdpo.LEARNER, False), (3, cpd_oppo.LEARNER, True), (9, cpdpo.LEARNER, True), (9, cpd_oppo.LEARNER, False),
    )
])  # fmt: skip
def test_sums_of_ones_are_the_same_without_a_carry(states, learner):
    """Leaving out a carry that is always 0 changes no bit."""
    cmdp = random_cmdp(3, states, 2, 2, seed=5)
    given = lanes_for(learner, cmdp, episodes=1000, preset="tuned", rho=0.5, dtype=np.float32, n_lanes=32)
    exact = given._replace(problem=given.problem._replace(payoffs=Payoffs(exact_sums=True)))
    careful = given._replace(problem=given.problem._replace(payoffs=Payoffs(exact_sums=False)))
    run = [
        compiled_loop.advance(learner, "bernoulli", some, compiled_loop.begin(learner, "bernoulli", some), 0, 200)
        for some in (exact, careful)
    ]
    assert run[0].learner.estimates.payoff_carry is None
    assert (np.asarray(run[1].learner.estimates.payoff_carry) == 0).all()
    without = [state._replace(learner=state.learner.estimates._replace(payoff_carry=None)) for state in run]
    chex.assert_trees_all_equal(*without)


@pytest.mark.parametrize(
    ("noise", "episodes", "exact"), [("bernoulli", 2**24, True), ("bernoulli", 2**24 + 1, False), ("beta", 9, False)]
)
def test_sums_are_exact_for_ones_in_runs_that_float32_can_count(noise, episodes, exact):
    cmdp = cp.stack([random_cmdp(3, 3, 2, 2, seed=5, noise=noise)])
    problem = base.make_problem(cmdp, episodes=episodes, delta=0.05, slater_margin=np.array([0.5]))
    assert problem.payoffs.exact_sums == exact


@pytest.mark.optimised
def test_after_2_to_the_24_ones_the_next_is_not_lost():
    """float32 knows no 2^24 + 1: what the sum loses is in its carry."""
    given = lanes()
    given = given._replace(problem=given.problem._replace(payoffs=Payoffs(exact_sums=False)))
    state = compiled_loop.begin(cpdpo.LEARNER, "bernoulli", given)
    full = jnp.full_like(state.learner.estimates.payoff_sum, 2**24)
    estimates = state.learner.estimates._replace(payoff_sum=full)
    state = state._replace(learner=state.learner._replace(estimates=estimates))
    after = compiled_loop.advance(cpdpo.LEARNER, "bernoulli", given, state, 2**24, 2**24 + 40).learner.estimates
    got = np.asarray(after.payoff_sum, np.float64) - 2**24 - np.asarray(after.payoff_carry, np.float64)
    assert got.sum() > 1000
    assert (got == np.round(got)).all()


@pytest.mark.optimised
def test_payoffs_that_a_learner_has_made_itself_are_added_with_care():
    """Payoffs of 0.1 are not 0 or 1, whatever the noise of the CMDP."""

    def update(problem, hyper, state, policy, trajectory):
        return observe(state, trajectory._replace(reward=0.1 * trajectory.reward)), Info(
            0 * problem.threshold, 0 * trajectory.state[0]
        )

    learner = Learner("tenths", lambda *_: NoHyperparameters(), lambda problem, _: empty(problem), uniform_play, update)
    cmdp = random_cmdp(3, 3, 2, 2, seed=5)
    given = lanes_for(learner, cmdp, episodes=1000, preset="tuned", rho=0.5, dtype=np.float32, n_lanes=32)
    run = compiled_loop.advance(learner, "bernoulli", given, compiled_loop.begin(learner, "bernoulli", given), 0, 300)
    assert (np.asarray(run.learner.payoff_carry[0]) != 0).any()


def uniform_play(problem, hyper, state):
    return base.uniform_policy(problem.action_mask, problem.threshold.dtype)
