"""policy_value and action_value against a plain backward recursion."""

from __future__ import annotations

import re
from math import log, sqrt
from typing import Any

import numpy as np
import pytest

from cpdpo_jax.kernels import action_value, policy_value
from tests.kernels.support import (
    ROUNDING,
    Problems,
    assert_batches_agree,
    assert_close,
    both_precisions,
    examples,
    random_problems,
    run,
)
from tests.reference import kernels_numpy as reference

SHAPES = [(1, 3, 2), (4, 3, 2), (3, 1, 1), (3, 33, 2)]  # L, S, A; over 32 states the loop over layers is compiled
# Values here are at most L = 5 in size and sums of at most 100 terms.
LOOSE = {"float32": 5e-6, "float64": 1e-12}


def random_payoff(rng: np.random.Generator, problems: Problems) -> np.ndarray:
    """[3, L, S, A, B]; not 0 at the padding, which must not count."""
    return rng.uniform(-1.0, 1.0, (3, *problems.policy.shape))


@both_precisions
def test_by_hand(dtype: str) -> None:
    """Two layers, two states, two actions."""
    policy = np.array([[[0.25, 0.75], [0.0, 0.0]], [[0.5, 0.5], [1.0, 0.0]]])
    transition = np.zeros((1, 2, 2, 2))
    transition[0, 0] = [[0.5, 0.5], [0.0, 1.0]]
    payoff = np.zeros((1, 2, 2, 2))
    payoff[0, 0, 0] = [1.0, 0.5]
    payoff[0, 1] = [[0.25, 0.75], [1.0, 9.0]]
    # Layer 1: V = (0.125 + 0.375, 1) = (0.5, 1), the payoff 9 is never taken.
    # x_0: Q = (1 + 0.25 + 0.5, 0.5 + 1) = (1.75, 1.5), V = 0.4375 + 1.125.
    q = np.array([[[[1.75, 1.5], [0.0, 0.0]], [[0.25, 0.75], [1.0, 9.0]]]])
    v = np.array([[[1.5625, 0.0], [0.5, 1.0]]])
    assert_close(run(action_value, dtype, transition, policy, payoff), q, ROUNDING[dtype])
    assert_close(run(policy_value, dtype, transition, policy, payoff), v, ROUNDING[dtype])


@pytest.mark.parametrize("shape", SHAPES)
@examples(6)
def test_equals_loops(shape: tuple[int, int, int], seed: int) -> None:
    """4 shapes x 6 x 12 cases of 3 payoffs, each in both precisions."""
    rng = np.random.default_rng(seed)
    problems = random_problems(rng, *shape, 12)
    payoff = random_payoff(rng, problems)
    arguments = problems.transition, problems.policy, payoff
    q, v = (
        np.stack([function(*(x[..., b] for x in arguments)) for b in range(12)], axis=-1)
        for function in (reference.action_value, reference.policy_value)
    )
    for dtype in ("float32", "float64"):
        assert_close(run(action_value, dtype, *arguments), q, LOOSE[dtype])
        assert_close(run(policy_value, dtype, *arguments), v, LOOSE[dtype])


def test_equals_monte_carlo() -> None:
    """The mean return of n sampled episodes.

    Every return lies in [0, L]. By Hoeffding, P(|mean - V| > t) <= 2 exp(-2 n t^2 / L^2), so that with
    t = L sqrt(ln(2 K / 1e-6) / (2 n)) all K payoffs are within t but for one set of samples in 10^6. Here
    n = 200000, L = 3 and K = 2: t = 0.0185.
    """
    n, n_layers, n_payoffs = 200_000, 3, 2
    rng = np.random.default_rng(20240607)
    problems = random_problems(rng, n_layers, 3, 2, 1)
    transition, policy = problems.transition[..., 0], problems.policy[..., 0]
    payoff = rng.random((n_payoffs, n_layers, 3, 2))
    state, total = np.zeros(n, int), np.zeros((n_payoffs, n))
    for k in range(n_layers):
        # The first outcome whose cumulative probability exceeds a uniform draw (the last, if rounding leaves none).
        action = (rng.random(n)[:, None] >= policy[k, state].cumsum(axis=1)[:, :-1]).sum(axis=1)
        total += payoff[:, k, state, action]
        if k + 1 < n_layers:
            ahead = transition[k, state, action].cumsum(axis=1)[:, :-1]
            state = (rng.random(n)[:, None] >= ahead).sum(axis=1)
    tolerance = n_layers * sqrt(log(2 * n_payoffs / 1e-6) / (2 * n))
    value = run(policy_value, "float64", transition, policy, payoff)[:, 0, 0]
    assert (np.abs(total.mean(axis=1) - value) < tolerance).all()
    # The test can tell: with the actions of the policy swapped the value is outside.
    swapped = reference.policy_value(transition, policy[:, :, ::-1], payoff)[:, 0, 0]
    assert (np.abs(total.mean(axis=1) - swapped) > 3.0 * tolerance).any()


@pytest.mark.parametrize(("batch", "axes"), [((), "K, L, S, A"), ((4,), "K, L, S, A, B")])
@pytest.mark.parametrize("function", [policy_value, action_value])
def test_a_payoff_without_the_axis_of_payoffs_is_named(function: Any, batch: tuple[int, ...], axes: str) -> None:
    transition, policy = np.full((2, 2, 2, 2, *batch), 0.5), np.full((3, 2, 2, *batch), 0.5)
    shape = re.escape(str(policy.shape))
    with pytest.raises(
        ValueError, match=rf"^payoff has shape {shape}; give \[{axes}\], such as payoff\[None\] for one"
    ):
        function(transition, policy, policy)
    assert function(transition, policy, policy[None]).shape[0] == 1


@both_precisions
@examples(6)
def test_invariants(dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    problems = random_problems(rng, 4, 3, 2, 12)
    tolerance = LOOSE[dtype]
    transition, policy, mask = problems.transition, problems.policy, problems.state_mask
    payoff = random_payoff(rng, problems)
    v = run(policy_value, dtype, transition, policy, payoff)
    q = run(action_value, dtype, transition, policy, payoff)
    assert_close((policy * q).sum(axis=3), v, tolerance)
    # V(x_0) is the payoff summed over the occupancy, computed forwards.
    for b in range(12):
        pairs = reference.occupancy(transition[..., b], policy[..., b])[..., None] * policy[..., b]
        assert_close(v[:, 0, 0, b], (pairs * payoff[..., b]).sum(axis=(1, 2, 3)), tolerance)
    # Linear in the payoff; and a payoff of 1 counts the layers to go.
    mixed = run(policy_value, dtype, transition, policy, 2.0 * payoff - 0.5 * payoff[::-1])
    assert_close(mixed, 2.0 * v - 0.5 * v[::-1], 2.0 * tolerance)
    to_go = run(policy_value, dtype, transition, policy, np.ones((3, *policy.shape)))[0]
    assert_close(to_go, np.array([4.0, 3.0, 2.0, 1.0])[:, None, None] * mask, tolerance)
    # Payoffs do not mix, and what padded pairs pay is never received.
    assert_close(run(policy_value, dtype, transition, policy, payoff[::-1]), v[::-1], tolerance)
    masked = np.where(problems.action_mask, payoff, 7.0)
    assert_close(run(policy_value, dtype, transition, policy, masked), v, tolerance)


@both_precisions
def test_unvisited_rows_of_zeros_end_the_episode(dtype: str) -> None:
    """Unvisited pairs have empirical rows of 0: the value beyond them is 0."""
    policy, payoff = np.ones((3, 1, 1)), np.ones((1, 3, 1, 1))
    transition = np.array([1.0, 0.0]).reshape(2, 1, 1, 1)
    v = np.array([2.0, 1.0, 1.0]).reshape(1, 3, 1)
    assert_close(run(policy_value, dtype, transition, policy, payoff), v, 0.0)


@pytest.mark.parametrize(
    ("kernel", "shape"), [(policy_value, (1, 2, 2)), (policy_value, (3, 3, 2)), (action_value, (3, 3, 2))]
)
def test_forms_agree(shape: tuple[int, int, int], kernel: object) -> None:
    rng = np.random.default_rng(8)
    problems = random_problems(rng, *shape, 6)
    arguments = problems.transition, problems.policy, random_payoff(rng, problems)
    assert_batches_agree(kernel, *arguments, first=(0, 2))
