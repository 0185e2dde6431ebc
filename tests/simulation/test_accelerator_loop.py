"""The loop for accelerators, run on a CPU: inner loops of known length, compared with the CPU's loop."""

from __future__ import annotations

import chex
import jax
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.kernels.machines.sizes import ACCELERATOR_LOOP_LENGTH as STRETCH
from cpdpo_jax.kernels.machines.target import tracing_for
from cpdpo_jax.learners import base
from cpdpo_jax.simulation import compiled_loop
from tests.support import lanes_for, random_cmdp


def start(name="cpdpo"):
    learner = base.get(name)
    cmdp = random_cmdp(3, 3, 2, 2, seed=5)
    given = lanes_for(learner, cmdp, episodes=1000, preset="tuned", rho=0.5, dtype=np.float32, n_lanes=32)
    return learner, given, compiled_loop.begin(learner, "bernoulli", given)


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


@pytest.mark.parametrize(
    "name",
    ["cpdpo", "cpd_oppo", *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("cpdpo_past", "podb"))],
)
def test_the_numbers_are_those_of_a_cpus_loop(name):
    """Up to rounding, until it changes the result of a comparison with a draw."""
    learner, given, state = start(name)
    expected = compiled_loop.advance(learner, "bernoulli", given, state, 0, 50)
    with tracing_for("gpu"):
        learner, given, state = start(name)
        found = compiled_loop.advance(learner, "bernoulli", given, state, 0, 50)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-3)
    assert np.asarray(found.sums.strong).std() > 0


def test_train_in_an_accelerators_form_is_simulates():
    cmdp, common = random_cmdp(2, 2, 2, 1, seed=5), {"episodes": 150, "checkpoints": [1, 70, 150]}
    with tracing_for("gpu"):
        train = cp.make_train("cpdpo", cmdp, **common)
        curves = jax.jit(jax.vmap(train))(train.keys(32))
    data = cp.simulate("cpdpo", cmdp, seeds=32, progress=False, **common).data.isel(learner=0, instance=0, hparams=0)
    np.testing.assert_allclose(curves.strong_regret[:, 0], data.strong_regret[:, 0], rtol=1e-4)
    assert (np.abs(np.asarray(curves.strong_regret) - data.strong_regret.values) < 1e-2).mean() > 0.9
