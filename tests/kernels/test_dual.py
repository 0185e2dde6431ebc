"""dual_max and lagrangian_loss of CPD-PO."""

from __future__ import annotations

import numpy as np
import pytest

from cpdpo_jax.kernels import dual_max, lagrangian_loss
from tests.kernels.support import (
    ROUNDING,
    assert_batches_agree,
    assert_close,
    both_precisions,
    examples,
    run,
)
from tests.reference import kernels_numpy as reference

N = 40


@both_precisions
def test_dual_by_hand(dtype: str) -> None:
    """The cap above the threshold, 0 at and below it."""
    values, threshold = np.array([1.5, 0.5, 1.0, -1.0]), np.array([1.0, 1.0, 1.0, 0.0])
    assert_close(run(dual_max, dtype, values, threshold, 8.0), np.array([8.0, 0.0, 0.0, 0.0]), 0.0)


@both_precisions
@pytest.mark.parametrize("n_constraints", [1, 3])
@examples(5)
def test_dual_equals_loops_and_maximises_the_lagrangian(n_constraints: int, dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Quarters: exact in both precisions, and often equal.
    values, threshold = rng.integers(-4, 12, (2, n_constraints, N)) / 4.0
    cap = rng.integers(1, 40, N) / 2.0
    actual = run(dual_max, dtype, values, threshold, cap)
    expected = np.stack([reference.dual_max(values[:, b], threshold[:, b], cap[b]) for b in range(N)], axis=-1)
    assert_close(actual, expected, 0.0)
    assert_close(run(dual_max, dtype, values, threshold, 8.0), 8.0 * (values > threshold), 0.0)
    # No multiplier in [0, cap] makes lambda (value - threshold) larger.
    other = rng.random((n_constraints, N)) * cap
    assert (actual * (values - threshold) >= other * (values - threshold)).all()


def test_dual_forms_agree() -> None:
    rng = np.random.default_rng(12)
    values, threshold = rng.random((2, 3, 6))
    assert_batches_agree(dual_max, values, threshold, rng.random(6))


@both_precisions
def test_loss_by_hand(dtype: str) -> None:
    """Two layers, two constraints, cap 3, the second multiplier 0."""
    reward_upper = np.array([0.5, 1.25])
    cost_lower = np.array([[0.4, 0.75], [0.9, 0.8]])
    multipliers, threshold = np.array([3.0, 0.0]), np.array([1.0, 0.5])
    # 6 - (0.5 - 3 (0.4 - 0.5)) = 6 - 0.8; 6 - (1.25 - 3 (0.75 - 0.5)) = 6 - 0.5
    actual = run(lagrangian_loss, dtype, reward_upper, cost_lower, multipliers, threshold, 3.0, n_layers=2)
    assert_close(actual, np.array([5.2, 5.5]), ROUNDING[dtype])


def random_loss(
    rng: np.random.Generator, n_layers: int, n_constraints: int, n: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    cap = rng.uniform(1.0, 20.0, n)
    multipliers = cap * rng.integers(0, 2, (n_constraints, n))
    threshold = n_layers * rng.random((n_constraints, n))
    return rng.random((n_layers, n)), rng.random((n_constraints, n_layers, n)), multipliers, threshold, cap


@both_precisions
@pytest.mark.parametrize(("n_layers", "n_constraints"), [(1, 1), (3, 3), (2, 3)])
@examples(5)
def test_loss_equals_loops(n_layers: int, n_constraints: int, dtype: str, seed: int) -> None:
    *arrays, cap = random_loss(np.random.default_rng(seed), n_layers, n_constraints, N)
    expected = [
        reference.lagrangian_loss(*(x[..., b] for x in arrays), cap[b], n_layers)  # type: ignore[call-arg]
        for b in range(N)
    ]
    actual = run(lagrangian_loss, dtype, *arrays, cap, n_layers=n_layers)
    # The loss is of order cap m; what cancels on the way to it leaves that size of rounding.
    scale = 2.0 * cap.max() * n_constraints
    assert_close(actual, np.stack(expected, axis=-1), scale * {"float32": 2e-7, "float64": 1e-14}[dtype])


@both_precisions
@examples(6)
def test_loss_invariants(dtype: str, seed: int) -> None:
    """In [-1, 2 cap m] for estimates in [0, 1]; falls with the reward, rises with an active constraint's cost."""
    rng = np.random.default_rng(seed)
    n_layers, n_constraints = 3, 2
    reward_upper, cost_lower, multipliers, threshold, cap = random_loss(rng, n_layers, n_constraints, N)
    tolerance = 100.0 * ROUNDING[dtype]

    def loss(reward: np.ndarray, cost: np.ndarray) -> np.ndarray:
        return run(lagrangian_loss, dtype, reward, cost, multipliers, threshold, cap, n_layers=n_layers)

    base = loss(reward_upper, cost_lower)
    assert (base >= -1.0 - tolerance).all()
    assert (base <= 2.0 * n_constraints * cap + tolerance).all()
    assert_close(loss(reward_upper + 0.25, cost_lower), base - 0.25, tolerance)
    assert_close(loss(reward_upper, cost_lower + 0.25), base + 0.25 * multipliers.sum(axis=0), tolerance)
    # With the cost at its share of the threshold the constraint has no say.
    share = np.broadcast_to(threshold[:, None] / n_layers, cost_lower.shape)
    assert_close(loss(reward_upper, share), n_constraints * cap - reward_upper, tolerance)


def test_loss_forms_agree() -> None:
    *arrays, cap = random_loss(np.random.default_rng(13), 3, 2, 6)
    assert_batches_agree(lagrangian_loss, *arrays, cap, n_layers=3)
