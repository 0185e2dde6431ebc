"""extreme_expectation: the largest and the smallest expectation over a box of distributions."""

from __future__ import annotations

import numpy as np
import pytest

from cpdpo_jax.kernels import extreme_expectation
from tests.kernels.support import (
    KINDS,
    ROUNDING,
    TOLERANCE,
    assert_batches_agree,
    assert_close,
    both_precisions,
    examples,
    random_member,
    random_row,
    run,
)
from tests.reference import kernels_numpy as reference

N = 48  # random cases in a batch


def random_rows(
    rng: np.random.Generator, width: int, n: int = N
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(p, lower, upper, f) [S, n]: every kind of set, padded next states in every other case, ties in f."""
    rows = []
    for i in range(n):
        real = rng.random(width) < (0.6 if i % 2 else 2.0)
        real[rng.integers(width)] = True
        f = rng.random(width)
        style = rng.integers(4)
        if style == 1:
            f = rng.integers(0, 3, width) / 2.0
        elif style == 2:
            f = np.eye(width)[rng.integers(width)]
        elif style == 3 and rng.random() < 0.3:
            f = np.full(width, f[0])
        rows.append((*random_row(rng, real, KINDS[i % len(KINDS)]), f))
    p, lower, upper, f = (np.stack(x, axis=-1) for x in zip(*rows, strict=True))
    return p, lower, upper, f


@both_precisions
def test_by_hand(dtype: str) -> None:
    """lower sums to 0.4, so 0.6 is free: (0.4 + 0.2) on f = 3, the rest by order."""
    lower, upper = np.array([0.1, 0.2, 0.1]), np.array([0.5, 0.9, 0.4])
    f = np.array([1.0, 2.0, 3.0])
    # max: 0.3 more on f=3 (p=0.4), 0.3 more on f=2 (p=0.5), p=0.1 on f=1: 0.1 + 1.0 + 1.2
    assert_close(run(extreme_expectation, dtype, lower, upper, f, maximize=True), 2.3, TOLERANCE[dtype])
    # min: 0.4 more on f=1 (p=0.5), 0.2 more on f=2 (p=0.4), p=0.1 on f=3: 0.5 + 0.8 + 0.3
    assert_close(run(extreme_expectation, dtype, lower, upper, f, maximize=False), 1.6, TOLERANCE[dtype])


@both_precisions
def test_by_hand_whole_simplex_and_single_point(dtype: str) -> None:
    f = np.array([0.25, -1.5, 0.75, 100.0])
    zero, upper = np.zeros(4), np.array([1.0, 1.0, 1.0, 0.0])  # the last next state is padding
    assert_close(run(extreme_expectation, dtype, zero, upper, f, maximize=True), 0.75, TOLERANCE[dtype])
    assert_close(run(extreme_expectation, dtype, zero, upper, f, maximize=False), -1.5, TOLERANCE[dtype])
    p = np.array([0.5, 0.25, 0.25, 0.0])  # 0.125 - 0.375 + 0.1875
    for maximize in (True, False):
        assert_close(run(extreme_expectation, dtype, p, p, f, maximize=maximize), -0.0625, TOLERANCE[dtype])


@both_precisions
@pytest.mark.parametrize("maximize", [True, False])
@pytest.mark.parametrize("width", [1, 2, 3, 5])
@examples(8)
def test_equals_linear_programme_and_vertices(width: int, maximize: bool, dtype: str, seed: int) -> None:
    """8 x 48 cases for each width, sense and precision."""
    _, lower, upper, f = random_rows(np.random.default_rng(seed), width)
    actual = run(extreme_expectation, dtype, lower, upper, f, maximize=maximize)
    assert_close(actual, reference.extremes_lp(lower.T, upper.T, f.T, maximize), TOLERANCE[dtype])
    assert_close(actual, reference.extremes_vertices(lower.T, upper.T, f.T, maximize), TOLERANCE[dtype])


@pytest.mark.parametrize("maximize", [True, False])
@pytest.mark.parametrize(
    ("width", "dtype"), [(12, "float64"), (20, "float32"), (20, "float64"), (40, "float32"), (40, "float64")]
)
@examples(3)
def test_equals_linear_programme_when_wide(width: int, maximize: bool, dtype: str, seed: int) -> None:
    """3 x 48 cases for each width, sense and precision."""
    _, lower, upper, f = random_rows(np.random.default_rng(seed), width)
    actual = run(extreme_expectation, dtype, lower, upper, f, maximize=maximize)
    assert_close(actual, reference.extremes_lp(lower.T, upper.T, f.T, maximize), TOLERANCE[dtype])


@pytest.mark.parametrize(("width", "maximize"), [(9, True), (17, False), (33, True), (65, False)])
def test_padding_changes_nothing(width: int, maximize: bool) -> None:
    """A problem of three states, padded to any width, whatever f says about the padding."""
    rng = np.random.default_rng(width)
    _, lower, upper, f = random_rows(rng, 3)
    expected = reference.extremes_vertices(lower.T, upper.T, f.T, maximize)
    place = rng.permutation(width)[:3]
    wide_lower, wide_upper = np.zeros((width, N)), np.zeros((width, N))
    wide_f = rng.uniform(-2.0, 2.0, (width, N))
    wide_lower[place], wide_upper[place], wide_f[place] = lower, upper, f
    actual = run(extreme_expectation, "float64", wide_lower, wide_upper, wide_f, maximize=maximize)
    assert_close(actual, expected, TOLERANCE["float64"])


@both_precisions
@pytest.mark.parametrize("width", [5, 20])
@examples(10)
def test_invariants(width: int, dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tolerance = TOLERANCE[dtype]
    p, lower, upper, f = random_rows(rng, width)

    def extremes(lower: np.ndarray, upper: np.ndarray, f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return (
            run(extreme_expectation, dtype, lower, upper, f, maximize=False),
            run(extreme_expectation, dtype, lower, upper, f, maximize=True),
        )

    low, high = extremes(lower, upper, f)
    assert (low <= high + tolerance).all()
    real = upper > 0.0
    assert (high <= np.where(real, f, -np.inf).max(axis=0) + tolerance).all()
    assert (low >= np.where(real, f, np.inf).min(axis=0) - tolerance).all()
    # Every member of the set lies between.
    other = np.stack([random_member(rng, lower[:, i], upper[:, i]) for i in range(N)], axis=-1)
    for member in (p, other):
        value = (member * f).sum(axis=0)
        assert (low - tolerance <= value).all()
        assert (value <= high + tolerance).all()
    # A constant, a positive factor, a change of sign and the order of the states.
    c = rng.uniform(-2.0, 2.0, N)
    assert_close(extremes(lower, upper, f + c), (low + c, high + c), tolerance)
    assert_close(extremes(lower, upper, 3.0 * f), (3.0 * low, 3.0 * high), 3.0 * tolerance)
    assert_close(extremes(lower, upper, -f), (-high, -low), tolerance)
    order = rng.permutation(width)
    assert_close(extremes(lower[order], upper[order], f[order]), (low, high), tolerance)
    # A larger set has wider extremes; a larger f larger ones.
    wide_low, wide_high = extremes(0.5 * lower, np.minimum(real, 1.5 * upper), f)
    assert (wide_low <= low + tolerance).all()
    assert (wide_high >= high - tolerance).all()
    above_low, above_high = extremes(lower, upper, f + rng.random(f.shape))
    assert (above_low >= low - tolerance).all()
    assert (above_high >= high - tolerance).all()


@pytest.mark.parametrize(("width", "maximize"), [(3, True), (20, False)])
def test_forms_agree(width: int, maximize: bool) -> None:
    _, lower, upper, f = random_rows(np.random.default_rng(5), width, 6)
    assert_batches_agree(extreme_expectation, lower, upper, f, first=(2,), maximize=maximize)


def test_all_axes_but_the_first_broadcast() -> None:
    width = 3
    _, lower, upper, f = random_rows(np.random.default_rng(6), width, 12)
    lower, upper = lower.reshape(width, 3, 1, 4)[..., :2], upper.reshape(width, 3, 1, 4)[..., :2]
    f = f.reshape(width, 1, 6, 2)[:, :, :5]
    actual = run(extreme_expectation, "float64", lower, upper, f, maximize=True)
    assert actual.shape == (3, 5, 2)
    for i, j, k in np.ndindex(3, 5, 2):
        row = lower[:, i, 0, k][None], upper[:, i, 0, k][None], f[:, 0, j, k][None]
        assert abs(actual[i, j, k] - reference.extremes_lp(*row, True)[0]) < ROUNDING["float64"]
