"""The bisection shared by `ghosh` and `opse`, against plain Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cpdpo_jax.learners.bisection import BISECTIONS, bisect

COSTS: dict[str, Callable[[Any], Any]] = {
    "falls": lambda y: 3 - y,
    "does not fall": lambda y: jnp.cos(5 * y),
    "feasible at 0": lambda y: 0 * y,
    "infeasible": lambda y: 9 + y,
}
LANES = np.array([0.3, 1.0, 2.7])  # thresholds
CAPS = np.array([7.0, 4.0, 5.0])


def plain(cost: Callable[[Any], Any], threshold: float, cap: float, try_cap: bool) -> tuple[float, bool]:
    """All turns, of one lane."""
    if cost(0.0) <= threshold:
        return 0.0, False
    if try_cap and cost(cap) > threshold:
        return cap, True
    lower, upper = 0.0, cap
    for _ in range(BISECTIONS):
        middle = (lower + upper) / 2
        lower, upper = (lower, middle) if cost(middle) <= threshold else (middle, upper)
    return upper, False


@pytest.mark.parametrize("try_cap", [False, True])
@pytest.mark.parametrize("name", COSTS)
def test_equals_plain_bisection(x64: None, name: str, try_cap: bool) -> None:
    found, fails = bisect(lambda y: COSTS[name](y)[None], jnp.asarray(LANES[None]), jnp.asarray(CAPS), try_cap=try_cap)
    expected = [plain(COSTS[name], *lane, try_cap) for lane in zip(LANES, CAPS, strict=True)]
    np.testing.assert_array_equal(found, [value for value, _ in expected])
    np.testing.assert_array_equal(fails, [failed for _, failed in expected])


def test_a_cap_of_0_is_tried(x64: None) -> None:
    _, fails = bisect(lambda y: 9 + y[None], jnp.asarray(LANES[None]), jnp.zeros(3), try_cap=True)
    assert fails.all()


@pytest.mark.parametrize(
    ("name", "try_cap", "turns"),
    [("feasible at 0", False, 1), ("feasible at 0", True, 2), ("infeasible", True, 2), ("falls", False, 25)],
)
def test_ends_once_every_lane_is_settled(name: str, try_cap: bool, turns: int) -> None:
    seen: list[Any] = []

    def cost(y: jax.Array) -> jax.Array:
        jax.debug.callback(seen.append, y)
        return COSTS[name](y)[None]

    jax.block_until_ready(bisect(cost, jnp.asarray(LANES[None]), jnp.asarray(CAPS), try_cap=try_cap))
    jax.effects_barrier()
    assert len(seen) == turns
