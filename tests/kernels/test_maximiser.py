"""maximising_transition: the maximising distribution in a box, for every state and action of a layer."""

from __future__ import annotations

import numpy as np
import pytest

from cpdpo_jax.kernels import extreme_expectation
from cpdpo_jax.kernels.maximiser import maximising_transition
from tests.kernels.support import (
    TOLERANCE,
    assert_close,
    both_precisions,
    examples,
    random_problems,
    run,
)
from tests.reference import kernels_numpy as reference


def random_layer(rng: np.random.Generator, width: int, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(lower, upper [S,A,S,n], f [S,n]): every kind of set, padding, ties in f."""
    problems = random_problems(rng, 2, width, 2, n)
    f = rng.uniform(-1.0, 1.0, (width, n))
    f[:, ::3] = rng.integers(0, 3, f[:, ::3].shape) / 2.0
    real = problems.upper[0].sum(axis=2, keepdims=True) > 0.5
    return np.where(real, problems.lower[0], 0.0), np.where(real, problems.upper[0], 0.0), f


@both_precisions
def test_by_hand(dtype: str) -> None:
    """lower sums to 0.4, so 0.6 is free: 0.3 to f = 3, then 0.3 of the 0.7 that f = 2 could take."""
    lower, upper = np.array([0.1, 0.2, 0.1]), np.array([0.5, 0.9, 0.4])
    p = run(maximising_transition, dtype, lower.reshape(1, 1, 3), upper.reshape(1, 1, 3), np.array([1.0, 2.0, 3.0]))
    assert_close(p[0, 0], np.array([0.1, 0.5, 0.4]), TOLERANCE[dtype])


@both_precisions
def test_ties_go_to_the_first(dtype: str) -> None:
    lower, upper = np.zeros((1, 1, 4)), np.array([[[1.0, 1.0, 1.0, 0.0]]])  # the last next state is padding
    p = run(maximising_transition, dtype, lower, upper, np.array([0.0, 0.5, 0.5, 9.0]))
    assert_close(p[0, 0], np.array([0.0, 1.0, 0.0, 0.0]), 0.0)


@both_precisions
@pytest.mark.parametrize("width", [1, 2, 5, 12])
@examples(4)
def test_equals_linear_programme(width: int, dtype: str, seed: int) -> None:
    """A member of the set whose expectation equals that of the LP and of `extreme_expectation`."""
    lower, upper, f = random_layer(np.random.default_rng(seed), width, 12)
    p = run(maximising_transition, dtype, lower, upper, f)
    tolerance = TOLERANCE[dtype]
    assert (p >= lower - tolerance).all()
    assert (p <= upper + tolerance).all()
    real = upper.sum(axis=2) > 0.5
    assert_close(p.sum(axis=2), real.astype(float), tolerance)
    value = np.einsum("xayb,yb->xab", p, f)
    front = (np.moveaxis(lower, 2, 0), np.moveaxis(upper, 2, 0), f[:, None, None])
    best = run(extreme_expectation, dtype, *front, maximize=True)
    assert_close(value[real], best[real], tolerance)
    x, a, b = np.nonzero(real)
    assert_close(value[real], reference.extremes_lp(lower[x, a, :, b], upper[x, a, :, b], f[:, b].T, True), tolerance)


def test_forms_agree() -> None:
    """A batch axis equals single cases and two batch axes."""
    lower, upper, f = random_layer(np.random.default_rng(5), 3, 6)
    expected = run(maximising_transition, "float64", lower, upper, f)
    for b in range(6):
        single = run(maximising_transition, "float64", lower[..., b], upper[..., b], f[..., b])
        assert_close(single, expected[..., b], TOLERANCE["float64"])
    two = [x.reshape(*x.shape[:-1], 2, 3) for x in (lower, upper, f)]
    assert_close(
        run(maximising_transition, "float64", *two), expected.reshape(*expected.shape[:-1], 2, 3), TOLERANCE["float64"]
    )
