"""The accelerator form of `sample_path` gives the same states and actions as the CPU form."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cpdpo_jax.kernels.machines.target import for_accelerator, tracing_for
from cpdpo_jax.simulation.rollout import make_model, rollout
from tests.support import random_cmdp


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("states", [3, 10])  # the second in two steps: too large to write out
def test_both_walks_take_the_same_path(masked, states):
    cmdp = random_cmdp(4, states, 2, 1, seed=3, masked=masked)
    mask = np.asarray(cmdp.action_mask)[..., None]
    weights = np.random.default_rng(1).random((*mask.shape[:3], 50)) * mask
    policy = jnp.asarray(weights / np.maximum(weights.sum(axis=2, keepdims=True), 1e-9), jnp.float32)
    draws = jnp.asarray(np.random.default_rng(2).random((4, 4, 50)), jnp.float32)
    model = make_model(cmdp, None, np.float32)
    expected = rollout(model, policy, draws, "bernoulli")
    with tracing_for("gpu"):
        found = rollout(model, policy, draws, "bernoulli")
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert len(np.unique(np.asarray(expected.state), axis=1).T) > 5


def test_the_target_is_part_of_a_programs_identity():
    traced = []
    function = jax.jit(lambda x: traced.append(for_accelerator()) or x)
    function(1.0)
    with tracing_for("gpu"):
        function(1.0)
    function(1.0)
    assert traced == [jax.default_backend() != "cpu", True]
