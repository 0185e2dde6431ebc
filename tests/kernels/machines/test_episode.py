"""numba's kernels of an episode against plain loops that share no code with them, and against pure JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cpdpo_jax.kernels import (
    optimistic_evaluation,
    paper_forms,
    root_value,
    sample_path,
    truncated_evaluation,
)
from cpdpo_jax.kernels.counting import count_episode, visited_rows
from cpdpo_jax.kernels.machines.sizes import MAX_XLA_STATES
from cpdpo_jax.kernels.machines.sizes import SIMD_LANES as LANES

SIZES = [(1, 9, 2, 1), (3, 9, 3, 2), (4, 10, 2, 3), (3, 11, 4, 5)]  # L, S, A, K; K payoffs go by two or by three


def model(rng: np.random.Generator, size: tuple[int, int, int, int], lanes: int) -> dict[str, np.ndarray]:
    """A model for `lanes` lanes (1: shared by all); some rows have unreachable next states."""
    n_layers, n_states, n_actions, n_payoffs = size
    rows = rng.random((n_layers - 1, n_states, n_actions, n_states, lanes))
    rows[rng.random(rows.shape) < 0.3] = 0
    rows[..., 0, :] += 0.1
    return {
        "transition": rows / rows.sum(axis=3, keepdims=True),
        "payoff": rng.random((n_payoffs, n_layers, n_states, n_actions, lanes)),
    }


def policies(rng: np.random.Generator, size: tuple[int, int, int, int], lanes: int) -> np.ndarray:
    n_layers, n_states, n_actions, _ = size
    policy = rng.random((n_layers, n_states, n_actions, lanes))
    policy[:, 1, -1] = 0  # an action that is not allowed
    return policy / policy.sum(axis=2, keepdims=True)


def plain_values(transition: np.ndarray, policy: np.ndarray, payoff: np.ndarray) -> np.ndarray:
    """V(x_0) of a lane by plain loops."""
    n_layers, n_states, n_actions = policy.shape
    ahead = np.zeros(n_states)
    for k in reversed(range(n_layers)):
        here = np.zeros(n_states)
        for x in range(n_states):
            for a in range(n_actions):
                q = payoff[k, x, a]
                if k < n_layers - 1:
                    q += sum(transition[k, x, a, y] * ahead[y] for y in range(n_states))
                here[x] += policy[k, x, a] * q
        ahead = here
    return ahead[0]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("own", [False, True])
def test_root_value_equals_plain_loops(size, own):
    rng, lanes = np.random.default_rng(1), 2 * LANES
    of, policy = model(rng, size, lanes if own else 1), policies(rng, size, lanes)
    found = root_value(*(jnp.asarray(array, jnp.float32) for array in (of["transition"], policy, of["payoff"])))
    for b in (0, 1, LANES, lanes - 1):
        at = b if own else 0
        for i in range(size[3]):
            value = plain_values(of["transition"][..., at], policy[..., b], of["payoff"][i, ..., at])
            np.testing.assert_allclose(found[i, b], value, rtol=2e-6)


@pytest.mark.parametrize("size", SIZES)
def test_truncated_evaluation_equals_plain_loops(size):
    n_layers, n_states, n_actions, n_payoffs = size
    rng, lanes = np.random.default_rng(2), LANES
    policy = policies(rng, size, lanes)
    counts = rng.integers(0, 4, (n_layers - 1, n_states, n_actions, n_states, lanes)).astype(np.int32)
    visits = np.concatenate([np.maximum(counts.sum(axis=3), 1), np.ones((1, n_states, n_actions, lanes), int)])
    payoff = rng.normal(0.3, 0.5, (n_payoffs, n_layers, n_states, n_actions, lanes))
    ceiling = rng.random((n_payoffs, n_layers, 1)) * np.arange(n_layers, 0, -1)[None, :, None]
    floats = [jnp.asarray(array, jnp.float32) for array in (visits, policy, payoff, ceiling)]
    q, values = truncated_evaluation(jnp.asarray(counts), *floats)
    for b in (0, lanes - 1):
        for i in range(n_payoffs):
            ahead = np.zeros(n_states)
            for k in reversed(range(n_layers)):
                here = np.zeros(n_states)
                for x in range(n_states):
                    for a in range(n_actions):
                        of_pair = payoff[i, k, x, a, b]
                        if k < n_layers - 1:
                            row = counts[k, x, a, :, b] / visits[k, x, a, b]
                            of_pair += sum(row[y] * ahead[y] for y in range(n_states))
                        of_pair = min(max(of_pair, 0.0), ceiling[i, k, 0])
                        np.testing.assert_allclose(q[i, k, x, a, b], of_pair, rtol=2e-6, atol=1e-6)
                        here[x] += policy[k, x, a, b] * of_pair
                ahead = here
            np.testing.assert_allclose(values[i, b], ahead[0], rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("size", SIZES)
def test_optimistic_evaluation_equals_plain_loops(size):
    """Step 1 of CPD-OPPO in numba's form, including widths and truncated payoffs, with some unvisited pairs."""
    n_layers, n_states, n_actions, n_payoffs = size
    rng, lanes = np.random.default_rng(7), LANES
    policy = policies(rng, size, lanes)
    counts = rng.integers(0, 4, (n_layers - 1, n_states, n_actions, n_states, lanes)).astype(np.int32)
    counts[:, 2, 0] = 0
    visits = np.concatenate([counts.sum(axis=3), rng.integers(0, 5, (1, n_states, n_actions, lanes))]).astype(np.int32)
    total = rng.random((n_payoffs, n_layers, n_states, n_actions, lanes)) * visits
    scale = rng.random((n_layers, lanes)) * np.where(rng.random((n_layers, 1)) < 0.3, 0.0, 1.5)
    floats = [jnp.asarray(array, jnp.float32) for array in (policy, total, scale)]
    arrays = jnp.asarray(counts), jnp.asarray(visits), *floats
    q, values = optimistic_evaluation(*arrays)
    for b in (0, lanes - 1):
        for i in range(n_payoffs):
            ahead = np.zeros(n_states)
            for k in reversed(range(n_layers)):
                here = np.zeros(n_states)
                for x in range(n_states):
                    for a in range(n_actions):
                        seen = visits[k, x, a, b]
                        n = max(seen, 1)
                        beta = min(1.0, scale[-1, b] / np.sqrt(n)) if seen else 1.0
                        w = (min(2.0, scale[k, b] / np.sqrt(n)) if seen else 2.0) if k < n_layers - 1 else 0.0
                        mean, reach = total[i, k, x, a, b] / n, (n_layers - k - 1) * w / 2
                        of_pair = min(1.0, mean + beta) + reach if i == 0 else max(0.0, mean - beta) - reach
                        if k < n_layers - 1:
                            of_pair += sum(counts[k, x, a, y, b] / n * ahead[y] for y in range(n_states))
                        of_pair = min(max(of_pair, 0.0), n_layers - k)
                        np.testing.assert_allclose(q[i, k, x, a, b], of_pair, rtol=2e-6, atol=2e-6)
                        here[x] += policy[k, x, a, b] * of_pair
                ahead = here
            np.testing.assert_allclose(values[i, b], ahead[0], rtol=2e-6, atol=2e-6)


def nothing_counted(size: tuple[int, int, int, int], lanes: int, carry: bool = True) -> tuple[Any, ...]:
    """visits, transitions, payoff_sum and payoff_carry before the first episode."""
    n_layers, n_states, n_actions, n_payoffs = size
    shape = (n_layers, n_states, n_actions, lanes)
    payoff = jnp.zeros((n_payoffs, *shape), jnp.float32)
    transitions = jnp.zeros((n_layers - 1, n_states, n_actions, n_states, lanes), jnp.int32)
    return jnp.zeros(shape, jnp.int32), transitions, payoff, payoff if carry else None


@pytest.mark.parametrize("n_states", [5, 9])
def test_lanes_without_a_state_count_nothing_and_exact_sums_need_no_carry(n_states):
    """In both forms, state -1 counts nothing; sums of 0 and 1 are equal with and without the carry."""
    rng, lanes, size = np.random.default_rng(8), 2 * LANES, (3, n_states, 2, 2)
    excluded = rng.random(lanes) < 0.4
    exact: Any = nothing_counted(size, lanes, carry=False)
    compensated: Any = nothing_counted(size, lanes)
    visits = np.zeros(compensated[0].shape, int)
    for _ in range(10):
        state, action = rng.integers(0, n_states, (3, lanes)), rng.integers(0, 2, (3, lanes))
        payoff = jnp.asarray(rng.random((2, 3, lanes)) < 0.5, jnp.float32)
        episode = jnp.asarray(np.where(excluded, -1, state), jnp.int32), jnp.asarray(action, jnp.int32), payoff
        exact, compensated = count_episode(*episode, *exact), count_episode(*episode, *compensated)
        for k, b in np.ndindex(3, lanes):
            visits[k, state[k, b], action[k, b], b] += not excluded[b]
    assert exact[3] is None
    for array, other in zip(exact[:3], compensated[:3], strict=True):
        np.testing.assert_array_equal(array, other)
    np.testing.assert_array_equal(exact[0], visits)
    assert not np.asarray(exact[1])[..., excluded].any()
    assert np.asarray(exact[1]).sum() == 10 * 2 * (~excluded).sum()
    assert np.asarray(exact[2]).sum() > 0


@pytest.mark.parametrize("own", [False, True])
def test_the_walk_and_the_counts_equal_plain_loops(own):
    size, lanes = (4, 10, 3, 3), 2 * LANES
    n_layers, n_states, n_actions, n_payoffs = size
    rng = np.random.default_rng(3)
    of, policy = model(rng, size, lanes if own else 1), policies(rng, size, lanes)
    possible = of["transition"] > 0
    last = np.flip(np.cumsum(np.flip(possible, 3), axis=3), 3) - possible == 0
    arrival = np.where(last, 2.0, np.cumsum(of["transition"], axis=3))
    allowed = np.ones((n_layers, n_states, n_actions, 1), bool)
    allowed[:, 1, -1] = False
    last_action = np.flip(np.cumsum(np.flip(allowed, 2), axis=2), 2) - allowed == 0
    counted: Any = nothing_counted(size, lanes)
    tables = jnp.asarray(last_action), jnp.asarray(arrival, jnp.float32), jnp.asarray(of["payoff"], jnp.float32)
    visits, moves = np.zeros(counted[0].shape, int), np.zeros(counted[1].shape, int)
    sums = np.zeros(counted[2].shape)
    pi, arrivals = np.asarray(policy, np.float32), np.asarray(arrival, np.float32)
    for _ in range(30):
        draws = rng.random((n_layers, 2 + n_payoffs, lanes)).astype(np.float32)
        states, actions, payoffs = sample_path(jnp.asarray(pi), *tables, jnp.asarray(draws))
        counted = count_episode(states, actions, payoffs, *counted)
        for b in range(lanes):
            x = 0
            for k in range(n_layers):
                a, until = 0, pi[k, x, 0, b]
                while until <= draws[k, 0, b] and not last_action[k, x, a, 0]:
                    a += 1
                    until = np.float32(until + pi[k, x, a, b])
                assert (states[k, b], actions[k, b]) == (x, a)
                visits[k, x, a, b] += 1
                sums[:, k, x, a, b] += of["payoff"][:, k, x, a, b if own else 0]
                if k < n_layers - 1:
                    y = int(np.argmax(arrivals[k, x, a, :, b if own else 0] > draws[k, 1, b]))
                    moves[k, x, a, y, b] += 1
                    x = y
        rows = np.asarray(visited_rows(states, actions, counted[1]))
        for k in range(n_layers - 1):
            state, action = int(states[k, 5]), int(actions[k, 5])
            np.testing.assert_array_equal(rows[k, :, 5], moves[k, state, action, :, 5])
    np.testing.assert_array_equal(counted[0], visits)
    np.testing.assert_array_equal(counted[1], moves)
    np.testing.assert_allclose(counted[2], sums, rtol=1e-6)


def test_numba_is_used_for_whole_vectors_in_wide_layers_only():
    size = (3, MAX_XLA_STATES + 1, 2, 1)
    rng = np.random.default_rng(4)

    def program(lanes: int, size: tuple[int, int, int, int] = size) -> str:
        of, policy = model(rng, size, 1), policies(rng, size, lanes)
        arrays = [jnp.asarray(array, jnp.float32) for array in (of["transition"], policy, of["payoff"])]
        return jax.jit(root_value).lower(*arrays).as_text()

    assert "cpdpo_jax_root_value" in program(LANES)
    assert "cpdpo_jax_root_value" not in program(LANES + 1)  # not whole vectors
    assert "cpdpo_jax_root_value" not in program(LANES, (3, MAX_XLA_STATES, 2, 1))
    with paper_forms():
        assert "cpdpo_jax_root_value" not in program(LANES)


def test_mapped_and_differentiated_they_are_pure_jax():
    size, lanes = (3, 9, 2, 2), LANES
    rng = np.random.default_rng(5)
    of, policy = model(rng, size, 1), policies(rng, size, lanes)
    transition, pi, payoff = (jnp.asarray(array, jnp.float32) for array in (of["transition"], policy, of["payoff"]))
    several = jnp.stack([pi, pi[..., ::-1]])
    mapped = jax.vmap(root_value, in_axes=(None, 0, None))(transition, several, payoff)
    for array, policy in zip(mapped, several, strict=True):
        np.testing.assert_allclose(array, root_value(transition, policy, payoff), rtol=1e-6)
    with paper_forms():
        expected = jax.grad(lambda policy: root_value(transition, policy, payoff).sum())(pi)
    found = jax.grad(lambda policy: root_value(transition, policy, payoff).sum())(pi)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_lane_does_not_depend_on_the_lanes_beside_it():
    size = (4, 9, 3, 3)
    rng = np.random.default_rng(6)
    of, policy = model(rng, size, 1), policies(rng, size, 3 * LANES)
    arrays = [jnp.asarray(array, jnp.float32) for array in (of["transition"], policy, of["payoff"])]
    whole = np.asarray(root_value(*arrays))
    order = rng.permutation(3 * LANES)
    np.testing.assert_array_equal(root_value(arrays[0], arrays[1][..., order], arrays[2]), whole[:, order])


def test_counts_beyond_float32():
    """2^24 + 1 visits: the count is a whole number, the sum of payoffs is compensated."""
    lanes, many = LANES, 2**24
    counted: Any = tuple(
        start + many * i for start, i in zip(nothing_counted((1, 9, 2, 1), lanes), (1, 0, 1, 0), strict=True)
    )
    steps = jnp.zeros((1, lanes), jnp.int32)
    for _ in range(4):
        counted = count_episode(steps, steps, jnp.ones((1, 1, lanes), jnp.float32), *counted)
    assert int(counted[0][0, 0, 0, 0]) == many + 4
    assert float(counted[2][0, 0, 0, 0, 0]) == many + 4
