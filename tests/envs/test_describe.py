"""`cmdp.describe()`: numbers in the units of the source, and warnings."""

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
    assert "constraint 1: 1.5 >= 1.5, met with equality, multiplier 0" in text
    assert "WARNING: constraint 1 has multiplier 0 and does not affect OPT" in text


def test_a_constraint_met_with_equality_that_costs_nothing_is_not_called_slack():
    """The best action has reward 1 and cost 0.3 = alpha: the constraint holds with equality, OPT is 1 without it."""
    single = cp.make_cmdp(None, [[[1.0, 0.0]]], [[[[0.3, 0.0]]]], [0.3])
    assert "constraint 0: 0.3 <= 0.3, met with equality, multiplier 0" in single.describe()
    loose = cp.make_cmdp(None, [[[1.0, 0.0]]], [[[[0.3, 0.0]]]], [0.4])
    assert "constraint 0: 0.3 <= 0.4, inactive" in loose.describe()
    binding = cp.make_cmdp(None, [[[1.0, 0.5]]], [[[[0.6, 0.0]]]], [0.3])
    assert "constraint 0: 0.3 <= 0.3, binds, multiplier 0.8333" in binding.describe()


def test_multipliers_are_in_the_units_of_the_source():
    """A day of advertising costs 70 dollars and draws 4 visitors: 17.5 dollars per visitor (1/1 in [0, 1] units)."""
    shop = cp.from_episodic(
        np.ones((1, 2, 1)), [[50.0, -20.0]], [[[1.0, 5.0]]], [9.0], horizon=3, sense=">=", reward_unit="dollars",
        cost_units="visitors",
    )  # fmt: skip
    assert "binds, multiplier 17.5 dollars per visitors" in shop.describe()
    solution = cp.solve(shop)
    np.testing.assert_allclose(solution.multipliers, 1, rtol=1e-9)
    assert "learner's units" in repr(solution)
    assert len(repr(solution)) < 200


def test_no_strictly_feasible_policy_and_none_at_all():
    assert "(rho = 0), as CPD-PO requires" in cp.envs.make("factored", threshold=0.0).describe()
    single = cp.make_cmdp(None, [[[1.0]]], np.ones((1, 1, 1, 1)), [0.5], name="tight")
    assert "WARNING: tight is infeasible" in single.describe()


def test_a_batch_instance_by_instance():
    text = cp.envs.make("hard", instances=22).describe()
    assert text.startswith("batch of 22 CMDPs")
    assert "hard(key=0)[19]: " in text
    assert "... and 2 more" in text
