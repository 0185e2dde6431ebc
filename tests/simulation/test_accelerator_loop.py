"""The loop as an accelerator gets it, run on a CPU: stretches of a known length, and what a CPU's loop computes."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.kernels import tracing_for
from cpdpo_jax.learners import base
from cpdpo_jax.simulation import compiled_loop
from cpdpo_jax.simulation.compiled_loop import STRETCH
from cpdpo_jax.simulation.hoisting import hoisted
from tests.support import lanes_for, random_cmdp


def start(name="cpdpo", **changed):
    learner = base.get(name)
    cmdp = random_cmdp(3, 3, 2, 2, seed=5)
    given = lanes_for(learner, cmdp, episodes=1000, preset="tuned", rho=0.5, dtype=np.float32, n_lanes=32, **changed)
    return learner, given, compiled_loop.begin(learner, given)


def without_sums(state):
    primal = state.learner.primal
    small = primal._replace(box=primal.box._replace(slack=None, excess=None))
    return state._replace(learner=state.learner._replace(primal=small))


@pytest.mark.parametrize("name", ["cpdpo", "cpd_oppo"])
def test_stretches_and_what_is_left_over_change_no_bit(name):
    last = 2 * STRETCH + 9
    with tracing_for("gpu"):
        learner, given, state = start(name)
        whole = compiled_loop.advance(learner, "bernoulli", given, state, 0, last)
        _, _, parts = start(name)
        for first, then in ((0, 1), (1, 1), (1, STRETCH + 3), (STRETCH + 3, last)):
            parts = compiled_loop.advance(learner, "bernoulli", given, parts, first, then)
    chex.assert_trees_all_equal(whole, parts)


@pytest.mark.parametrize("name", ["cpdpo", "cpd_oppo", "podb"])
@pytest.mark.parametrize("past", [0, 1])
def test_the_numbers_are_those_of_a_cpus_loop(name, past):
    """Up to rounding, and for as long as no comparison with a draw turns out otherwise for it."""
    changed = {"past_counts": float(past)} if name == "cpdpo" else {}
    learner, given, state = start(name, **changed)
    expected = compiled_loop.advance(learner, "bernoulli", given, state, 0, 50)
    with tracing_for("gpu"):
        learner, given, state = start(name, **changed)
        found = compiled_loop.advance(learner, "bernoulli", given, state, 0, 50)
    if name != "cpd_oppo":  # an accelerator's forms do without the sums of the confidence set
        expected, found = without_sums(expected), without_sums(found)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-3)
    assert np.asarray(found.sums.strong).std() > 0


def test_train_in_an_accelerators_form_is_simulates():
    cmdp, common = random_cmdp(2, 2, 2, 1, seed=5), {"episodes": 150, "checkpoints": [1, 70, 150]}
    with tracing_for("gpu"):
        train = cp.make_train("cpdpo", cmdp, **common)
        curves = jax.jit(jax.vmap(train))(train.keys(32))
    data = cp.simulate("cpdpo", cmdp, seeds=32, progress=False, **common).data.isel(learner=0, instance=0, setting=0)
    np.testing.assert_allclose(curves.strong_regret[:, 0], data.strong_regret[:, 0], rtol=1e-4)
    assert (np.abs(np.asarray(curves.strong_regret) - data.strong_regret.values) < 1e-2).mean() > 0.9


def test_what_does_not_change_is_computed_before_the_loop():
    def step(fixed, state, t):
        return {
            "sum": state["sum"] + jnp.log(fixed["a"]).sum() * t.astype(jnp.float32),
            "kept": fixed["a"][:1] + state["kept"],
        }

    fixed, state = {"a": jnp.arange(1.0, 4.0)}, {"sum": jnp.float32(1), "kept": jnp.ones(1)}

    def loop(fixed, state):
        one = hoisted(step, fixed, state, jnp.int32(0))
        return jax.lax.scan(lambda state, t: (one(state, t), None), state, jnp.arange(4))[0]

    expected = state
    for t in range(4):
        expected = step(fixed, expected, jnp.int32(t))
    chex.assert_trees_all_close(loop(fixed, state), expected, rtol=1e-6)
    (scan,) = (one for one in jax.make_jaxpr(loop)(fixed, state).eqns if one.primitive.name == "scan")
    inside = {one.primitive.name for one in scan.params["jaxpr"].eqns}
    assert "log" not in inside
    assert "slice" in inside  # costs nothing in a kernel, and would be an array to read
