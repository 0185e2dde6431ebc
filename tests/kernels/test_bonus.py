"""exploration_bonus and dilated_bonus of PO-DB."""

from __future__ import annotations

import numpy as np
import pytest

from cpdpo_jax.kernels import dilated_bonus, exploration_bonus
from tests.kernels.support import (
    TOLERANCE,
    Problems,
    assert_batches_agree,
    assert_close,
    both_precisions,
    examples,
    random_members,
    random_problems,
    run,
)
from tests.reference import kernels_numpy as reference

SHAPES = [(1, 3, 2), (4, 3, 2), (3, 4, 1)]  # L, S, A
N = 12


def random_bonus(rng: np.random.Generator, problems: Problems) -> np.ndarray:
    """[L, S, B], as the exploration bonus is: 0 at padded states."""
    return rng.random(problems.state_mask.shape) * problems.state_mask


def random_bounds(rng: np.random.Generator, problems: Problems) -> tuple[np.ndarray, np.ndarray]:
    """(low, up) [L, S, B] with 0 <= low <= up <= 1, sometimes equal, sometimes 0."""
    low, up = np.sort(rng.random((2, *problems.state_mask.shape)), axis=0)
    low = np.where(rng.random(low.shape) < 0.2, up, low) * problems.state_mask
    return np.where(rng.random(low.shape) < 0.2, 0.0, low), up * problems.state_mask


# --- exploration -----------------------------------------------------------------------------------------------------


@both_precisions
def test_exploration_by_hand(dtype: str) -> None:
    """L = 2, gamma = 0.1: sum_a pi (0.6 + 2 pi (up - low)) / (pi up + 0.1)."""
    policy = np.array([[[0.25, 0.75], [0.0, 0.0]], [[0.5, 0.5], [1.0, 0.0]]])
    low = np.array([[1.0, 0.0], [0.2, 0.0]])
    up = np.array([[1.0, 0.0], [0.6, 0.4]])
    expected = np.array(
        [
            # 0.25 * 0.6 / 0.35 + 0.75 * 0.6 / 0.85; padding
            [0.25 * 0.6 / 0.35 + 0.75 * 0.6 / 0.85, 0.0],
            # 2 * 0.5 * (0.6 + 2 * 0.2) / (0.3 + 0.1); (0.6 + 2 * 0.4) / (0.4 + 0.1)
            [2.5, 2.8],
        ]
    )
    assert_close(run(exploration_bonus, dtype, policy, low, up, 0.1), expected, TOLERANCE[dtype])


@both_precisions
@pytest.mark.parametrize("shape", [(1, 3, 2), (4, 3, 2)])
@examples(6)
def test_exploration_equals_loops(shape: tuple[int, int, int], dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    problems = random_problems(rng, *shape, N)
    low, up = random_bounds(rng, problems)
    exploration = 10.0 ** rng.uniform(-4.0, 0.0, N)
    expected = np.stack(
        [
            reference.exploration_bonus(problems.policy[..., b], low[..., b], up[..., b], exploration[b])
            for b in range(N)
        ],
        axis=-1,
    )
    # Relative: with a small gamma the bonus is a quotient of small numbers. float32 loses up - low where they meet.
    actual = run(exploration_bonus, dtype, problems.policy, low, up, exploration)
    assert_close(actual, expected, 4.0 * TOLERANCE[dtype])


@both_precisions
@examples(6)
def test_exploration_invariants(dtype: str, seed: int) -> None:
    """Not negative, at most (3 + 1) L |A|, 0 at padding, larger for a wider interval, and 3 L where up = 0."""
    rng = np.random.default_rng(seed)
    problems = random_problems(rng, 4, 3, 2, N)
    low, up = random_bounds(rng, problems)
    tolerance = 10.0 * TOLERANCE[dtype]
    bonus = run(exploration_bonus, dtype, problems.policy, low, up, np.full(N, 0.01))
    assert (bonus >= 0.0).all()
    assert (bonus[~problems.state_mask] == 0.0).all()
    assert (bonus <= 4 * (3.0 + 2.0) + tolerance).all()  # pi/(q_up + gamma) (...) <= 3 L pi + L per action
    assert (run(exploration_bonus, dtype, problems.policy, 0.5 * low, up, np.full(N, 0.01)) >= bonus - tolerance).all()
    nothing = np.zeros_like(up)
    for tiny in (0.01, 1e-30):
        unreachable = run(exploration_bonus, dtype, problems.policy, nothing, nothing, np.full(N, tiny))
        assert_close(unreachable, 12.0 * problems.state_mask, tolerance)


def test_exploration_forms_agree() -> None:
    rng = np.random.default_rng(9)
    problems = random_problems(rng, 3, 3, 2, 6)
    arguments = problems.policy, *random_bounds(rng, problems)
    assert_batches_agree(exploration_bonus, *arguments, rng.uniform(0.01, 0.1, 6))


# --- dilated ---------------------------------------------------------------------------------------------------------


@both_precisions
def test_dilated_by_hand(dtype: str) -> None:
    """Dilation 1.5, two layers; the largest expectation of (2, 1) over p(0) in [0.25, 0.5] and over the simplex."""
    policy = np.array([[[0.25, 0.75], [0.0, 0.0]], [[0.5, 0.5], [1.0, 0.0]]])
    bonus = np.array([[0.5, 0.0], [2.0, 1.0]])
    lower, upper = np.zeros((1, 2, 2, 2)), np.zeros((1, 2, 2, 2))
    lower[0, 0, 0], upper[0, 0, 0] = [0.25, 0.25], [0.5, 0.75]
    upper[0, 0, 1] = 1.0
    actual = run(dilated_bonus, dtype, policy, bonus, lower, upper, 1.5)
    # 0.5 + 1.5 * (0.5 * 2 + 0.5 * 1) = 2.75; 0.5 + 1.5 * 2 = 3.5
    assert_close(actual[0, 0], np.array([2.75, 3.5]), TOLERANCE[dtype])
    assert_close(actual[1, 0], np.array([2.0, 2.0]), TOLERANCE[dtype])
    assert_close(actual[1, 1, :1], np.array([1.0]), TOLERANCE[dtype])
    assert np.isfinite(actual).all()


@both_precisions
def test_dilated_by_hand_compounds(dtype: str) -> None:
    """One state and one action, four layers, bonus 1, dilation 1.25: 1 + 1.25 (1 + 1.25 (1 + 1.25))."""
    policy, bonus, sure = np.ones((4, 1, 1)), np.ones((4, 1)), np.ones((3, 1, 1, 1))
    expected = np.array([5.765625, 3.8125, 2.25, 1.0]).reshape(4, 1, 1)
    assert_close(run(dilated_bonus, dtype, policy, bonus, sure, sure, 1.25), expected, TOLERANCE[dtype])


@pytest.mark.parametrize("shape", SHAPES)
@examples(6)
def test_dilated_equals_recursion_by_vertices(shape: tuple[int, int, int], seed: int) -> None:
    """3 shapes x 6 x 12 cases, each in both precisions."""
    rng = np.random.default_rng(seed)
    problems = random_problems(rng, *shape, N)
    bonus = random_bonus(rng, problems)
    dilation = rng.uniform(1.0, 2.0, N)
    expected = np.stack(
        [
            reference.dilated_bonus(
                problems.policy[..., b],
                bonus[..., b],
                problems.lower[..., b],
                problems.upper[..., b],
                dilation[b],
                reference.extremes_vertices,
            )
            for b in range(N)
        ],
        axis=-1,
    )
    assert not np.isnan(expected[problems.action_mask]).any()
    for dtype in ("float32", "float64"):
        actual = run(dilated_bonus, dtype, problems.policy, bonus, problems.lower, problems.upper, dilation)
        assert np.isfinite(actual).all()
        assert_close(actual[problems.action_mask], expected[problems.action_mask], 2.0 * TOLERANCE[dtype])


@pytest.mark.parametrize(("width", "dtype"), [(12, "float64"), (20, "float32")])
def test_dilated_equals_recursion_by_linear_programme(width: int, dtype: str) -> None:
    rng = np.random.default_rng(width)
    problems = random_problems(rng, 3, width, 1, 6)
    bonus = random_bonus(rng, problems)
    actual = run(dilated_bonus, dtype, problems.policy, bonus, problems.lower, problems.upper, 4.0 / 3.0)
    for b in range(3):
        sets = problems.lower[..., b], problems.upper[..., b]
        expected = reference.dilated_bonus(
            problems.policy[..., b], bonus[..., b], *sets, 4.0 / 3.0, reference.extremes_lp
        )
        real = problems.action_mask[..., b]
        assert_close(actual[..., b][real], expected[real], 2.0 * TOLERANCE[dtype])


@both_precisions
@examples(6)
def test_dilated_invariants(dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    problems = random_problems(rng, 4, 3, 2, N)
    bonus, real = random_bonus(rng, problems), problems.action_mask
    tolerance = 4.0 * TOLERANCE[dtype]

    def dilated(bonus: np.ndarray, lower: np.ndarray, upper: np.ndarray, dilation: float) -> np.ndarray:
        return run(dilated_bonus, dtype, problems.policy, bonus, lower, upper, np.full(N, dilation))

    sets = problems.lower, problems.upper
    base = dilated(bonus, *sets, 1.25)
    at_pairs = np.broadcast_to(bonus[:, :, None], base.shape)
    # Dilation 0 leaves the bonus; the bonus itself is a lower bound; more dilation and more bonus give more.
    assert_close(dilated(bonus, *sets, 0.0)[real], at_pairs[real], tolerance)
    assert_close(base[-1][real[-1]], at_pairs[-1][real[-1]], tolerance)
    assert (base >= at_pairs - tolerance)[real].all()
    assert (dilated(bonus, *sets, 1.5) >= base - tolerance)[real].all()
    assert (dilated(bonus + rng.random(bonus.shape) * (bonus > 0.0), *sets, 1.25) >= base - tolerance)[real].all()
    assert_close(dilated(3.0 * bonus, *sets, 1.25)[real], 3.0 * base[real], tolerance)
    # Undilated, it is the value of the bonus: exactly for one transition function, at least that for any in the set.
    plain = dilated(bonus, *sets, 1.0)
    for transition in (problems.transition, random_members(rng, problems)):
        point = dilated(bonus, transition, transition, 1.0)
        for b in range(N):
            arguments = transition[..., b], problems.policy[..., b], at_pairs[None, ..., b]
            value = reference.action_value(*arguments)[0][real[..., b]]
            assert_close(point[..., b][real[..., b]], value, tolerance)
            assert (plain[..., b][real[..., b]] >= value - tolerance).all()


@pytest.mark.parametrize("shape", [(1, 2, 2), (3, 3, 2)])
def test_dilated_forms_agree(shape: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(10)
    problems = random_problems(rng, *shape, 6)
    arguments = problems.policy, random_bonus(rng, problems), problems.lower, problems.upper
    assert_batches_agree(dilated_bonus, *arguments, rng.uniform(1.0, 2.0, 6))
