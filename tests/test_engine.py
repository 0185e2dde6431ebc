"""The compiled loop: it lowers for a GPU, hyperparameters do not recompile it, and cutting a run changes no bit."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax import engine
from cpdpo_jax.learners import cpdpo
from tests.support import lanes_for, random_cmdp


def lanes(**changed):
    cmdp = random_cmdp(3, 3, 2, 2, seed=5)
    return lanes_for(
        cpdpo.LEARNER, cmdp, episodes=1000, preset="tuned", rho=0.5, dtype=np.float32, n_lanes=32, **changed
    )


def test_the_loop_lowers_for_cuda():
    """Lowering only: there is no GPU here."""
    given = lanes()
    loop = partial(engine.advance, cpdpo.LEARNER, "bernoulli")
    exported = jax.export.export(jax.jit(loop), platforms=["cuda"])(
        given, engine.begin(cpdpo.LEARNER, given), jnp.int32(0), jnp.int32(10)
    )
    assert exported.platforms == ("cuda",)


def test_hyperparameters_and_bounds_do_not_recompile():
    given = lanes()
    run = engine.begin(cpdpo.LEARNER, given)
    run = engine.advance(cpdpo.LEARNER, "bernoulli", given, run, 0, 10)
    compiled = engine.advance._cache_size()  # pyright: ignore[reportAttributeAccessIssue]
    other = lanes(learning_rate=0.5, dual_cap=2.0)
    engine.advance(cpdpo.LEARNER, "bernoulli", other, engine.begin(cpdpo.LEARNER, other), 0, 7)
    assert engine.advance._cache_size() == compiled  # pyright: ignore[reportAttributeAccessIssue]


def test_cutting_a_run_changes_no_bit():
    given = lanes()
    whole = engine.advance(cpdpo.LEARNER, "bernoulli", given, engine.begin(cpdpo.LEARNER, given), 0, 300)
    parts = engine.begin(cpdpo.LEARNER, given)
    for first, last in ((0, 1), (1, 128), (128, 300)):
        parts = engine.advance(cpdpo.LEARNER, "bernoulli", given, parts, first, last)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True):
        np.testing.assert_array_equal(a, b)
