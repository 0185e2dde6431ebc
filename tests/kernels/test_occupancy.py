"""Reach probabilities under a transition function, and their smallest and largest values over a box."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cpdpo_jax.kernels import occupancy, occupancy_bounds
from cpdpo_jax.kernels.machines.target import tracing_for
from tests.kernels.support import (
    KINDS,
    TOLERANCE,
    assert_batches_agree,
    assert_close,
    both_precisions,
    examples,
    random_members,
    random_problems,
    run,
)
from tests.reference import kernels_numpy as reference

SHAPES = [(1, 3, 2), (2, 3, 2), (4, 3, 2), (3, 1, 2), (3, 4, 1), (5, 2, 2)]  # L, S, A


@both_precisions
def test_by_hand_two_steps(dtype: str) -> None:
    """One action, two states in a layer; layer 0 has x_0 only."""
    policy = np.ones((3, 2, 1))
    policy[0, 1] = 0.0
    lower, upper = np.zeros((2, 2, 1, 2)), np.zeros((2, 2, 1, 2))
    lower[0, 0, 0], upper[0, 0, 0] = [0.2, 0.3], [0.6, 0.7]
    lower[1, 0, 0], upper[1, 0, 0] = [0.5, 0.1], [0.9, 0.5]
    lower[1, 1, 0], upper[1, 1, 0] = [0.0, 0.6], [0.4, 1.0]
    # Layer 1: p(0) is at least 1 - 0.7 = 0.3 and at most 0.6, so p(1) is in [0.4, 0.7].
    # Layer 2, state 0: at most 0.6 * 0.9 + 0.4 * 0.4 = 0.70, at least 0.3 * 0.5 + 0.7 * 0 = 0.15.
    # Layer 2, state 1: at most 0.3 * 0.5 + 0.7 * 1.0 = 0.85, at least 0.6 * 0.1 + 0.4 * 0.6 = 0.30.
    low = np.array([[1.0, 0.0], [0.3, 0.4], [0.15, 0.30]])
    up = np.array([[1.0, 0.0], [0.6, 0.7], [0.70, 0.85]])
    assert_close(run(occupancy_bounds, dtype, policy, lower, upper), (low, up), TOLERANCE[dtype])


@both_precisions
def test_by_hand_policy_mixes_actions(dtype: str) -> None:
    """pi = (1/4, 3/4, 0); p(0|a_0) in [0.1, 0.5], p(0|a_1) in [0.6, 0.8]; a_2 and the third state are padding."""
    policy, lower, upper = np.zeros((2, 3, 3)), np.zeros((1, 3, 3, 3)), np.zeros((1, 3, 3, 3))
    policy[0, 0] = [0.25, 0.75, 0.0]
    policy[1, :2, 0] = 1.0
    lower[0, 0, 0], upper[0, 0, 0] = [0.1, 0.5, 0.0], [0.5, 0.9, 0.0]
    lower[0, 0, 1], upper[0, 0, 1] = [0.6, 0.2, 0.0], [0.8, 0.4, 0.0]
    # state 0: [0.25 * 0.1 + 0.75 * 0.6, 0.25 * 0.5 + 0.75 * 0.8]; state 1 is what is left of it
    low = np.array([[1.0, 0.0, 0.0], [0.475, 0.275, 0.0]])
    up = np.array([[1.0, 0.0, 0.0], [0.725, 0.525, 0.0]])
    assert_close(run(occupancy_bounds, dtype, policy, lower, upper), (low, up), TOLERANCE[dtype])


@pytest.mark.parametrize("shape", SHAPES)
@examples(4)
def test_equals_recursion_by_linear_programme_and_by_vertices(shape: tuple[int, int, int], seed: int) -> None:
    """6 shapes x 4 x 24 = 576 cases, each in both precisions."""
    problems = random_problems(np.random.default_rng(seed), *shape, 24)
    arguments = problems.policy, problems.lower, problems.upper
    by_programme = reference.occupancy_bounds(*arguments, reference.extremes_lp)
    by_vertices = reference.occupancy_bounds(*arguments, reference.extremes_vertices)
    for dtype in ("float32", "float64"):
        actual = run(occupancy_bounds, dtype, *arguments)
        assert_close(actual, by_programme, TOLERANCE[dtype])
        assert_close(actual, by_vertices, TOLERANCE[dtype])


@pytest.mark.parametrize("shape", [(4, 3, 2), (5, 2, 2)])
@examples(1)
def test_equals_linear_programme_over_whole_occupancies(shape: tuple[int, int, int], seed: int) -> None:
    """Independent of the recursion: a transition function of the set attains the bound."""
    problems = random_problems(np.random.default_rng(seed), *shape, 24)
    low, up = run(occupancy_bounds, "float64", problems.policy, problems.lower, problems.upper)
    for b in range(2 * len(KINDS)):
        expected = reference.occupancy_bounds_flow(
            problems.policy[..., b], problems.lower[..., b], problems.upper[..., b]
        )
        assert_close((low[..., b], up[..., b]), expected, TOLERANCE["float64"])


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [pytest.param((3, 12, 1), "float64", marks=pytest.mark.exhaustive), ((3, 20, 1), "float32")],
)
def test_wide_layers_equal_recursion_by_linear_programme(shape: tuple[int, int, int], dtype: str) -> None:
    problems = random_problems(np.random.default_rng(shape[1]), *shape, 6)
    arguments = problems.policy, problems.lower, problems.upper
    expected = reference.occupancy_bounds(*arguments, reference.extremes_lp)
    assert_close(run(occupancy_bounds, dtype, *arguments), expected, TOLERANCE[dtype])


def test_padding_changes_nothing() -> None:
    """More padded states and one more padded action: same bounds, and 0 at the padding."""
    problems = random_problems(np.random.default_rng(3), 3, 3, 2, 6)
    expected = reference.occupancy_bounds(problems.policy, problems.lower, problems.upper, reference.extremes_vertices)
    states, actions, none = (0, 14), (0, 1), (0, 0)
    policy = np.pad(problems.policy, (none, states, actions, none))
    lower = np.pad(problems.lower, (none, states, actions, states, none))
    upper = np.pad(problems.upper, (none, states, actions, states, none))
    expected = tuple(np.pad(x, (none, states, none)) for x in expected)
    assert_close(run(occupancy_bounds, "float32", policy, lower, upper), expected, TOLERANCE["float32"])


@both_precisions
@pytest.mark.parametrize("shape", [(4, 3, 2), (5, 2, 2)])
@examples(5)
def test_every_member_of_the_set_lies_between(shape: tuple[int, int, int], dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tolerance = TOLERANCE[dtype]
    problems = random_problems(rng, *shape, 24)
    low, up = run(occupancy_bounds, dtype, problems.policy, problems.lower, problems.upper)
    assert (low <= up + tolerance).all()
    assert (low >= -tolerance).all()
    assert (up <= 1.0 + tolerance).all()
    assert (low.sum(axis=1) <= 1.0 + tolerance).all()
    assert (up.sum(axis=1) >= 1.0 - tolerance).all()
    for transition in (problems.transition, random_members(rng, problems), random_members(rng, problems)):
        for b in range(24):
            q = reference.occupancy(transition[..., b], problems.policy[..., b])
            assert (low[..., b] - tolerance <= q).all()
            assert (q <= up[..., b] + tolerance).all()


@both_precisions
@examples(5)
def test_bounds_are_ordered_probabilities_exactly(dtype: str, seed: int) -> None:
    """Exactly: the estimator divides by up + gamma, and gamma may be smaller than the rounding error."""
    problems = random_problems(np.random.default_rng(seed), 4, 3, 2, 24)
    for lower, upper in ((problems.lower, problems.upper), (problems.transition, problems.transition)):
        low, up = run(occupancy_bounds, dtype, problems.policy, lower, upper)
        assert (low >= 0.0).all()
        assert (low <= up).all()
        assert (up <= 1.0).all()


@both_precisions
@examples(5)
def test_larger_sets_have_wider_bounds(dtype: str, seed: int) -> None:
    problems = random_problems(np.random.default_rng(seed), 4, 3, 2, 24)
    tolerance = TOLERANCE[dtype]
    policy, lower, upper, real = problems.policy, problems.lower, problems.upper, problems.upper > 0.0
    low, up = run(occupancy_bounds, dtype, policy, lower, upper)
    wide_low, wide_up = run(occupancy_bounds, dtype, policy, 0.5 * lower, np.minimum(real, 1.5 * upper))
    assert (wide_low <= low + tolerance).all()
    assert (wide_up >= up - tolerance).all()


@both_precisions
@examples(5)
def test_one_transition_function_leaves_no_gap(dtype: str, seed: int) -> None:
    """lower = upper = P: both bounds are the occupancy of P."""
    problems = random_problems(np.random.default_rng(seed), 4, 3, 2, 24)
    q = np.stack(
        [reference.occupancy(problems.transition[..., b], problems.policy[..., b]) for b in range(24)], axis=-1
    )
    actual = run(occupancy_bounds, dtype, problems.policy, problems.transition, problems.transition)
    assert_close(actual, (q, q), TOLERANCE[dtype])


@both_precisions
@examples(5)
def test_all_transition_functions_leave_nothing_certain(dtype: str, seed: int) -> None:
    """With the whole simplex, any real state can have probability 1, and 0 unless it is the only one."""
    problems = random_problems(np.random.default_rng(seed), 4, 3, 2, 24)
    real = problems.state_mask[1:].astype(float)
    upper = problems.action_mask[:-1, :, :, None] * real[:, None, None]
    low, up = run(occupancy_bounds, dtype, problems.policy, np.zeros_like(upper), upper)
    assert_close(up[1:], real, TOLERANCE[dtype])
    assert_close(low[1:], real * (real.sum(axis=1, keepdims=True) == 1.0), TOLERANCE[dtype])


@both_precisions
def test_first_layer_is_certain(dtype: str) -> None:
    """x_0 is state 0 of layer 0, whatever the policy says about the other states there."""
    policy = np.full((1, 3, 2), 0.5)
    none = np.zeros((0, 3, 2, 3))
    certain = np.array([[1.0, 0.0, 0.0]])
    assert_close(run(occupancy_bounds, dtype, policy, none, none), (certain, certain), 0.0)


@pytest.mark.parametrize("shape", [(1, 2, 2), (3, 3, 2)])
def test_forms_agree(shape: tuple[int, int, int]) -> None:
    problems = random_problems(np.random.default_rng(7), *shape, 6)
    arguments = problems.policy, problems.lower, problems.upper
    assert_batches_agree(occupancy_bounds, *arguments)


@both_precisions
def test_one_transition_function_by_hand(dtype: str) -> None:
    """x_0 plays its actions with 1/4 and 3/4; they lead to state 0 with 1/2 and 1; state 1 then stays where it is."""
    policy = np.ones((3, 2, 2)) * [0.25, 0.75]
    transition = np.zeros((2, 2, 2, 2))
    transition[0, 0] = [[0.5, 0.5], [1.0, 0.0]]
    transition[1, 0], transition[1, 1] = [0.2, 0.8], [0.0, 1.0]
    # layer 1: 1/4 * 1/2 + 3/4 = 7/8 and 1/8; layer 2: 7/8 * 0.2 = 0.175 and the rest
    expected = np.array([[1.0, 0.0], [0.875, 0.125], [0.175, 0.825]])
    assert_close(run(occupancy, dtype, transition, policy), expected, TOLERANCE[dtype])


def sum_over_paths(transition: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """[L, S] by its meaning: the probabilities of all ways that lead to a state, no recursion."""
    n_layers, n_states, n_actions = policy.shape
    reached = np.zeros((n_layers, n_states))
    for h, end in np.ndindex(n_layers, n_states):
        for states in itertools.product(range(n_states), repeat=h):
            for actions in itertools.product(range(n_actions), repeat=h):
                way = (*states, end)
                steps = [policy[k, way[k], a] * transition[k, way[k], a, way[k + 1]] for k, a in enumerate(actions)]
                reached[h, end] += (way[0] == 0) * np.prod(steps)
    return reached


@pytest.mark.parametrize("shape", [(1, 3, 2), (2, 3, 2), (3, 3, 2), (4, 2, 2), (3, 10, 1)])
@examples(2)
def test_one_transition_function_equals_plain_loops_and_the_sum_over_paths(
    shape: tuple[int, int, int], seed: int
) -> None:
    """5 shapes x 2 x 6 = 60 cases, each in both precisions; they lie between the bounds over any set around them."""
    problems = random_problems(np.random.default_rng(seed), *shape, 6)
    each = [(problems.transition[..., b], problems.policy[..., b]) for b in range(6)]
    for oracle in (reference.occupancy, sum_over_paths):
        expected = np.stack([oracle(*arguments) for arguments in each], axis=-1)
        for dtype in ("float32", "float64"):
            assert_close(run(occupancy, dtype, problems.transition, problems.policy), expected, TOLERANCE[dtype])
    low, up = run(occupancy_bounds, "float64", problems.policy, problems.lower, problems.upper)
    assert (low <= expected + 1e-10).all()
    assert (expected <= up + 1e-10).all()


def test_one_transition_function_forms_agree() -> None:
    problems = random_problems(np.random.default_rng(8), 3, 3, 2, 6)
    assert_batches_agree(occupancy, problems.transition, problems.policy)


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_bounds_are_clipped_in_every_form(platform: str) -> None:
    """A policy that sums to 1.5 stands for a rounding error: 1.125 in the last layer becomes 1."""
    policy = jnp.full((3, 2, 2, 16), 0.75, jnp.float32)
    transition = jnp.full((2, 2, 2, 2, 16), 0.5, jnp.float32)
    with tracing_for(platform):
        low, up = jax.jit(lambda *given: occupancy_bounds(*given))(policy, transition, transition)
    np.testing.assert_array_equal(up[2], 1)
    np.testing.assert_array_equal(low[2], 1)
    np.testing.assert_allclose(up[1], 0.75, rtol=1e-6)
