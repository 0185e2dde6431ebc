"""`cmdp.describe()`: numbers in the units of the source, and warnings."""

import re

import numpy as np

import cpdpo_jax as cp


def test_media_streaming_in_original_units():
    text = cp.envs.make("media_streaming").describe()
    assert text.startswith("media_streaming: 10 layers of 1 to 10 states (|X| = 56), up to 2 actions, 1 constraint")
    assert "OPT 6.7467 (least value that meets the constraints; without them 5.39314)" in text
    assert "rho = 5" in text
    assert "constraint 0: 5 <= 5, binds" in text
    assert "WARNING" not in text


def test_a_constraint_that_does_not_bind_is_warned_of():
    text = cp.envs.make("grid_three_constraints", threshold=(1.5, 1.5, 2.5)).describe()
    assert "constraint 0: 1.5 >= 1.5, binds" in text
    assert re.search(r"constraint 1: 1\.\d+ >= 1.5, does not bind", text)
    assert "WARNING: constraint 1 does not bind" in text


def test_no_strictly_feasible_policy_and_none_at_all():
    assert "(rho = 0): CPD-PO refuses it" in cp.envs.make("factored", threshold=0.0).describe()
    one = cp.make_cmdp(None, [[[1.0]]], np.ones((1, 1, 1, 1)), [0.5], name="tight")
    assert "WARNING: tight is infeasible" in one.describe()


def test_a_batch_instance_by_instance():
    text = cp.envs.make("hard", instances=22).describe()
    assert text.startswith("batch of 22 CMDPs")
    assert "hard(key=0)[19]: " in text
    assert "... and 2 more" in text
