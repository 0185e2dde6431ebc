"""hoeffding_width, bernstein_width and confidence_set."""

from __future__ import annotations

import numpy as np
import pytest

from cpdpo_jax.kernels import bernstein_width, confidence_set, hoeffding_width
from tests.kernels.support import (
    ROUNDING,
    assert_batches_agree,
    assert_close,
    both_precisions,
    examples,
    run,
)
from tests.reference import kernels_numpy as reference

SHAPES = [(1, 3, 2), (4, 3, 2), (3, 1, 1)]  # L, S, A
N = 12


def random_counts(
    rng: np.random.Generator, n_layers: int, n_states: int, n_actions: int, n: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(visits [L-1, S, A, n], transitions [L-1, S, A, S, n], next states [L-1, S, n]), from 0 to 10^8 visits."""
    shape = (n_layers - 1, n_states, n_actions, n)
    visits = (10.0 ** rng.uniform(0.0, 8.0, shape)).astype(np.int32) * (rng.random(shape) < 0.8)
    visits = np.where(rng.random(shape) < 0.2, 1, visits).astype(np.int32)
    real = rng.random((n_layers - 1, n_states, n)) < rng.choice([0.6, 2.0], n)
    transitions = np.zeros((n_layers - 1, n_states, n_actions, n_states, n), np.int32)
    for k, b in np.ndindex(n_layers - 1, n):
        real[k, rng.integers(n_states), b] = True
        for x, a in np.ndindex(n_states, n_actions):
            p = rng.dirichlet(np.full(real[k, :, b].sum(), 0.5))
            transitions[k, x, a, real[k, :, b], b] = rng.multinomial(visits[k, x, a, b], p)
    return visits, transitions, real


def one_by_one(function: object, n: int, *arrays: np.ndarray) -> np.ndarray:
    return np.stack([function(*(x[..., b] for x in arrays)) for b in range(n)], axis=-1)  # type: ignore[operator]


# --- Hoeffding -------------------------------------------------------------------------------------------------------


@both_precisions
def test_hoeffding_by_hand(dtype: str) -> None:
    """ln = 1: sqrt(4/N), never above 1, and no visit counts as one."""
    visits = np.array([0, 1, 2, 4, 16, 100, 40_000])
    expected = np.array([1.0, 1.0, 1.0, 1.0, 0.5, 0.2, 0.01])
    assert_close(run(hoeffding_width, dtype, visits, 1.0), expected, ROUNDING[dtype])
    # ln = 0.0625: sqrt(0.25 / N)
    assert_close(
        run(hoeffding_width, dtype, visits[:4], 0.0625), np.array([0.5, 0.5, 0.125**0.5, 0.25]), ROUNDING[dtype]
    )


@both_precisions
@pytest.mark.parametrize("shape", SHAPES)
@examples(6)
def test_hoeffding_equals_loops(shape: tuple[int, int, int], dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    visits, _, _ = random_counts(rng, *shape, N)
    log_term = 10.0 ** rng.uniform(-2.0, 1.5, N)
    expected = one_by_one(reference.hoeffding_width, N, visits, log_term)
    width = run(hoeffding_width, dtype, visits, log_term)
    assert_close(width, expected, ROUNDING[dtype])
    assert ((width > 0.0) & (width <= 1.0)).all()
    assert (run(hoeffding_width, dtype, visits + 1, log_term) <= width).all()
    assert (run(hoeffding_width, dtype, visits, 2.0 * log_term) >= width).all()


def test_hoeffding_forms_agree() -> None:
    rng = np.random.default_rng(14)
    visits, _, _ = random_counts(rng, 3, 3, 2, 6)
    assert_batches_agree(hoeffding_width, visits, rng.random(6))


# --- Bernstein -------------------------------------------------------------------------------------------------------


@both_precisions
def test_bernstein_by_hand(dtype: str) -> None:
    """ln = 1.5 and P_hat = (1/6, 0); N = 5 counts as 4; N = 0, 1 and 2 as 1."""
    p_hat = np.broadcast_to(np.array([1.0 / 6.0, 0.0]), (1, 1, 4, 2))
    visits = np.array([5, 0, 1, 2]).reshape(1, 1, 4)
    # 2 sqrt(0.25 / n) + 7 / n
    expected = np.array([[0.5 + 1.75, 1.75], [1.0 + 7.0, 7.0], [8.0, 7.0], [8.0, 7.0]])
    assert_close(run(bernstein_width, dtype, p_hat, visits, 1.5), expected[None, None], ROUNDING[dtype])


@both_precisions
@pytest.mark.parametrize("shape", SHAPES)
@examples(6)
def test_bernstein_equals_loops(shape: tuple[int, int, int], dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    visits, transitions, _ = random_counts(rng, *shape, N)
    p_hat = transitions / np.maximum(1, visits)[:, :, :, None]
    log_term = 10.0 ** rng.uniform(-2.0, 1.5, N)
    expected = one_by_one(reference.bernstein_width, N, p_hat, visits, log_term)
    width = run(bernstein_width, dtype, p_hat, visits, log_term)
    assert_close(width, expected, ROUNDING[dtype])
    assert (width > 0.0).all()
    rounding = 1.0 + ROUNDING[dtype]
    assert (run(bernstein_width, dtype, p_hat, visits + 1, log_term) <= rounding * width).all()
    assert (rounding * run(bernstein_width, dtype, p_hat, visits, 2.0 * log_term) >= width).all()


def test_bernstein_forms_agree() -> None:
    rng = np.random.default_rng(15)
    visits, _, _ = random_counts(rng, 3, 3, 2, 6)
    p_hat = rng.random((2, 3, 2, 3, 6))
    assert_batches_agree(bernstein_width, p_hat, visits, rng.random(6))


# --- PO-DB's set -----------------------------------------------------------------------------------------------------


@both_precisions
def test_set_by_hand(dtype: str) -> None:
    """ln = 0.01: conf = 4 sqrt(0.01 P_bar / N) + 0.28 / (3 N); three next states, of which the last is padding."""
    visits = np.array([100, 4, 0]).reshape(1, 1, 3)
    transitions = np.array([[25, 75, 0], [4, 0, 0], [0, 0, 0]]).reshape(1, 1, 3, 3)
    mask = np.array([[True, True, False]])
    # N = 100: 4 * 0.005 + 0.28/300 = 0.0209333 at 0.25, 4 * 0.00866025 + 0.28/300 = 0.0355743 at 0.75
    # N = 4: 4 * 0.05 + 0.28/12 = 0.2233333 at 1, 0.28/12 = 0.0233333 at 0
    # N = 0: the whole simplex over the real states
    lower = np.array(
        [[0.25 - 0.02 - 0.28 / 300, 0.75 - 0.02 * 3**0.5 - 0.28 / 300, 0], [0.8 - 0.28 / 12, 0, 0], [0, 0, 0]]
    )
    upper = np.array([[0.25 + 0.02 + 0.28 / 300, 0.75 + 0.02 * 3**0.5 + 0.28 / 300, 0], [1, 0.28 / 12, 0], [1, 1, 0]])
    actual = run(confidence_set, dtype, visits, transitions, mask, 0.01)
    assert_close(actual, (lower[None, None], upper[None, None]), ROUNDING[dtype])


@both_precisions
@pytest.mark.parametrize("shape", SHAPES)
@examples(6)
def test_set_equals_loops(shape: tuple[int, int, int], dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    visits, transitions, mask = random_counts(rng, *shape, N)
    log_term = 10.0 ** rng.uniform(-2.0, 1.5, N)
    expected = [
        reference.confidence_set(visits[..., b], transitions[..., b], mask[..., b], log_term[b]) for b in range(N)
    ]
    lower, upper = (np.stack(x, axis=-1) for x in zip(*expected, strict=True))
    assert_close(run(confidence_set, dtype, visits, transitions, mask, log_term), (lower, upper), ROUNDING[dtype])


@both_precisions
@examples(8)
def test_set_invariants(dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    visits, transitions, mask = random_counts(rng, 4, 3, 2, N)
    log_term = 10.0 ** rng.uniform(-2.0, 1.5, N)
    tolerance = ROUNDING[dtype]
    lower, upper = run(confidence_set, dtype, visits, transitions, mask, log_term)
    assert ((lower >= 0.0) & (lower <= upper) & (upper <= 1.0)).all()
    # Never empty, which the closed forms of the inner problem need.
    assert (lower.sum(axis=3) <= 1.0 + tolerance).all()
    assert (upper.sum(axis=3) >= 1.0 - tolerance).all()
    # Padded next states have no mass; unvisited pairs the whole simplex; visited ones contain their mean.
    real = np.broadcast_to(mask[:, None, None], upper.shape)
    assert (upper[~real] == 0.0).all()
    unvisited = np.broadcast_to((visits == 0)[:, :, :, None], upper.shape)
    assert (lower[unvisited] == 0.0).all()
    assert (upper[unvisited & real] == 1.0).all()
    mean = transitions / np.maximum(1, visits)[:, :, :, None]
    assert (lower <= mean + tolerance)[~unvisited].all()
    assert (upper >= mean - tolerance)[~unvisited].all()
    # A larger logarithm widens it.
    wide_lower, wide_upper = run(confidence_set, dtype, visits, transitions, mask, 2.0 * log_term)
    assert (wide_lower <= lower + tolerance).all()
    assert (wide_upper >= upper - tolerance).all()
    # A logarithm of 0 leaves the mean, but the whole simplex where there is none.
    lower, upper = run(confidence_set, dtype, visits, transitions, mask, 0.0 * log_term)
    assert_close(lower, mean, tolerance)
    assert_close(upper, np.where(unvisited, real, mean), tolerance)


def test_set_forms_agree() -> None:
    rng = np.random.default_rng(16)
    visits, transitions, mask = random_counts(rng, 3, 3, 2, 6)
    assert_batches_agree(confidence_set, visits, transitions, mask, rng.random(6), first=(3,))
