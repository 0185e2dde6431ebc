"""Every kernel compiled and operation by operation, its arguments on the device and on the host: always the answer of
the plain loops. One problem, no batch axis; scalars are Python's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import chex
import jax
import numpy as np
from absl.testing import parameterized

from cpdpo_jax import kernels
from cpdpo_jax.kernels.lookup import at_index, at_pairs
from cpdpo_jax.kernels.sums import compensated_add
from tests.kernels.support import TOLERANCE, random_problems
from tests.reference import kernels_numpy as reference

LAYERS, STATES, ACTIONS = 3, 3, 2


class Case(NamedTuple):
    kernel: Callable[..., Any]
    arguments: tuple[Any, ...]
    expected: Any
    static: dict[str, Any]


def case(kernel: Callable[..., Any], *arguments: Any, oracle: Callable[..., Any] | None = None, **static: Any) -> Case:
    """A kernel and its oracle, by default the plain loops of the same name."""
    expected = (oracle or getattr(reference, kernel.__name__))(*arguments, **static)
    return Case(kernel, arguments, expected, static)


def _bounds(policy: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> list[np.ndarray]:
    batched = policy[..., None], lower[..., None], upper[..., None]
    return [bound[..., 0] for bound in reference.occupancy_bounds(*batched, reference.extremes_vertices)]


def _extreme(lower: np.ndarray, upper: np.ndarray, f: np.ndarray, maximize: bool) -> float:
    return reference.extremes_vertices(lower[None], upper[None], f[None], maximize)[0]


@cache
def cases() -> dict[str, Case]:
    rng = np.random.default_rng(3)
    policy, transition, lower, upper, _, mask = (a[..., 0] for a in random_problems(rng, LAYERS, STATES, ACTIONS, 1))
    payoff, bonus = rng.random((2, *policy.shape)), rng.random((LAYERS, STATES))
    low, up = _bounds(policy, lower, upper)
    values, threshold = rng.random((2, 2))
    visits = rng.integers(0, 5, policy[:-1].shape)
    counts = rng.multinomial(1, np.full(STATES, 1 / STATES), visits.shape) * visits[..., None]
    state, action = rng.integers(STATES, size=LAYERS), rng.integers(ACTIONS, size=LAYERS)
    row = lower[0, 0, 0], upper[0, 0, 0], rng.random(STATES)
    free = np.zeros((STATES, ACTIONS, STATES))  # with 1 above it, the set of all distributions
    seen = rng.random(LAYERS), rng.random((2, LAYERS)), values, threshold
    dilated = partial(reference.dilated_bonus, solver=reference.extremes_vertices)
    return {
        "policy_value": case(kernels.policy_value, transition, policy, payoff),
        "action_value": case(kernels.action_value, transition, policy, payoff),
        "occupancy": case(kernels.occupancy, transition, policy),
        "occupancy_bounds": case(kernels.occupancy_bounds, policy, lower, upper, oracle=_bounds),
        "exploration_bonus": case(kernels.exploration_bonus, policy, low, up, 0.03),
        "dilated_bonus": case(kernels.dilated_bonus, policy, bonus, lower, upper, 4 / 3, oracle=dilated),
        "extreme_most": case(kernels.extreme_expectation, *row, oracle=_extreme, maximize=True),
        "extreme_least": case(kernels.extreme_expectation, *row, oracle=_extreme, maximize=False),
        "maximising_transition": case(
            kernels.maximising_transition, free, free + 1, row[2], oracle=lambda lower, upper, f: upper * (f == f.max())
        ),
        "dual_max": case(kernels.dual_max, values, threshold, 8.0),
        "lagrangian_loss": case(kernels.lagrangian_loss, *seen, 8.0, n_layers=LAYERS),
        "hoeffding_width": case(kernels.hoeffding_width, visits, 2.5),
        "bernstein_width": case(kernels.bernstein_width, rng.random(counts.shape), visits, 2.5),
        "confidence_set": case(kernels.confidence_set, visits, counts, mask[1:].any(axis=2), 0.1),
        "at_index": case(at_index, state[0], policy[0], oracle=lambda index, table: table[index]),
        "at_pairs": case(at_pairs, state, action, payoff, oracle=lambda x, a, table: table[:, np.arange(LAYERS), x, a]),
        "compensated_add": case(compensated_add, values, 0 * values, threshold, oracle=lambda s, c, x: (s + x, 0 * c)),
    }


NAMES = (
    "policy_value", "action_value", "occupancy", "occupancy_bounds", "exploration_bonus", "dilated_bonus",
    "extreme_most", "extreme_least", "maximising_transition", "dual_max", "lagrangian_loss", "hoeffding_width",
    "bernstein_width", "confidence_set", "at_index", "at_pairs", "compensated_add",
)  # fmt: skip


def single(array: Any) -> Any:
    """Arrays in single precision, as in a simulation; Python numbers unchanged."""
    if not isinstance(array, np.ndarray | np.generic):
        return array
    return np.asarray(array, {"f": np.float32, "i": np.int32, "b": bool}[array.dtype.kind])


class Variants(chex.TestCase):
    @chex.variants(with_jit=True, without_jit=True, with_device=True, without_device=True)  # pyright: ignore
    @parameterized.parameters(*NAMES)
    def test_equals_the_plain_loops(self, name: str) -> None:
        case = cases()[name]
        kernel = partial(inspect.unwrap(case.kernel), **case.static)  # without the kernel's own jit
        results = self.variant(kernel)(*map(single, case.arguments))
        for actual, other in zip(jax.tree.leaves(results), jax.tree.leaves(case.expected), strict=True):
            assert actual.dtype == np.float32
            meant = np.isfinite(other)  # pairs that are padding have no dilated bonus
            np.testing.assert_allclose(
                np.where(meant, actual, other), other, rtol=TOLERANCE["float32"], atol=TOLERANCE["float32"]
            )


def test_every_case_is_run() -> None:
    assert set(cases()) == set(NAMES)
