"""Shared by the kernel tests: random problems, and ways to call a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

# On quantities of order one.
TOLERANCE = {"float32": 2e-6, "float64": 1e-10}
ROUNDING = {"float32": 2e-6, "float64": 1e-12}

both_precisions = pytest.mark.parametrize("dtype", ["float32", "float64"])


def examples(n: int) -> Callable[[Any], Any]:
    """Hypothesis draws n seeds, for a fixed n; the test creates a batch of random cases from each."""

    def decorate(test: Any) -> Any:
        seeded = given(seed=st.integers(0, 2**32 - 1))(test)
        # Nothing to shrink in a seed.
        return settings(max_examples=n, derandomize=True, deadline=None, database=None, phases=[Phase.generate])(seeded)

    return decorate


# --- calling a kernel ------------------------------------------------------------------------------------------------


@cache
def _jitted(kernel: Any, static: tuple[tuple[str, Any], ...]) -> Any:
    return jax.jit(partial(kernel, **dict(static)))


def _cast(x: Any, dtype: str) -> np.ndarray:
    x = np.asarray(x)
    if x.dtype.kind == "f":
        return x.astype(dtype)
    return x.astype(np.int32) if x.dtype.kind in "iu" else x


def _host(out: Any, dtype: str) -> Any:
    for leaf in jax.tree.leaves(out):
        assert leaf.dtype == dtype, f"{leaf.dtype} out of {dtype} arguments"
    return jax.tree.map(lambda x: np.asarray(x, np.float64), out)


def run(kernel: Any, dtype: str, *args: Any, **static: Any) -> Any:
    """Call the compiled kernel in a precision, and check the precision of the result."""
    with jax.enable_x64(dtype == "float64"):
        return _host(_jitted(kernel, tuple(static.items()))(*(_cast(x, dtype) for x in args)), dtype)


def assert_close(actual: Any, expected: Any, tolerance: float) -> None:
    """Same tree, shapes and numbers, within a tolerance relative to max(1, |number|)."""
    actual, expected = jax.tree.leaves(actual), jax.tree.leaves(expected)
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        assert np.shape(a) == np.shape(e)
        np.testing.assert_allclose(a, e, rtol=tolerance, atol=tolerance)


def assert_batches_agree(kernel: Any, *args: np.ndarray, first: tuple[int, ...] = (0,), **static: Any) -> None:
    """A batch axis equals single cases, `jax.vmap`, and two batch axes (some of size 1), in float64.

    The last axis of every array is the batch, of size 6. With two batch axes, the arguments numbered in `first`
    have sizes (2, 1) and the others (1, 3).
    """
    tolerance = ROUNDING["float64"]
    plain = partial(kernel, **static)
    compiled = jax.jit(plain)
    mapped = jax.jit(jax.vmap(plain, in_axes=-1, out_axes=-1))

    def call(function: Any, arrays: Iterable[np.ndarray]) -> Any:
        with jax.enable_x64(True):
            return _host(function(*(_cast(x, "float64") for x in arrays)), "float64")

    expected = call(compiled, args)
    singles = [call(compiled, (x[..., i] for x in args)) for i in range(6)]
    assert_close(jax.tree.map(lambda *x: np.stack(x, axis=-1), *singles), expected, tolerance)
    assert_close(call(mapped, args), expected, tolerance)

    thin = [x[..., :2, None] if i in first else x[..., None, 2:5] for i, x in enumerate(args)]
    full = [np.broadcast_to(x, (*x.shape[:-2], 2, 3)) for x in thin]
    cells = [call(compiled, (x[..., i, j] for x in full)) for i, j in np.ndindex(2, 3)]
    square = jax.tree.map(lambda *x: np.stack(x, axis=-1).reshape(*np.shape(x[0]), 2, 3), *cells)
    assert_close(call(compiled, thin), square, tolerance)


# --- random problems -------------------------------------------------------------------------------------------------

KINDS = ("box", "vacuous", "point", "rows", "empirical", "coarse")


class Problems(NamedTuple):
    """B random problems with a box set of transition functions each; arrays [..., B]."""

    policy: np.ndarray  # [L, S, A, B]
    transition: np.ndarray  # [L-1, S, A, S, B] a member of the set
    lower: np.ndarray  # [L-1, S, A, S, B]
    upper: np.ndarray  # [L-1, S, A, S, B]
    state_mask: np.ndarray  # [L, S, B]
    action_mask: np.ndarray  # [L, S, A, B]


def random_row(rng: np.random.Generator, real: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(p, lower, upper) [S]: a set and a member of it, 0 at the next states that are not real."""
    n = int(real.sum())
    p, lower, upper = np.zeros(len(real)), np.zeros(len(real)), np.zeros(len(real))
    if kind == "rows":
        kind = str(rng.choice(["box", "vacuous", "point", "empirical"]))
    if kind == "coarse":  # quarters: ties everywhere, sums exact
        member = rng.multinomial(4, np.full(n, 1 / n)) / 4
        low, high = member - rng.integers(0, 3, n) / 4, member + rng.integers(0, 3, n) / 4
    elif kind == "empirical":  # a mean of few visits and a width common to all next states
        visits = int(rng.integers(1, 30))
        member = rng.multinomial(visits, rng.dirichlet(np.ones(n))) / visits
        width = rng.uniform(0, 2) * np.sqrt(member / visits) + rng.uniform(0, 1) / visits
        low, high = member - width, member + width
    else:
        member = rng.dirichlet(np.full(n, rng.choice([0.2, 1.0, 5.0])))
        if kind == "box":
            scale = rng.choice([0.02, 0.2, 1.0])
            low, high = member - scale * rng.random(n), member + scale * rng.random(n)
        elif kind == "vacuous":
            low, high = np.zeros(n), np.ones(n)
        else:
            low, high = member, member
    p[real], lower[real], upper[real] = member, np.maximum(low, 0.0), np.minimum(high, 1.0)
    return p, lower, upper


def random_problems(rng: np.random.Generator, n_layers: int, n_states: int, n_actions: int, n_batch: int) -> Problems:
    """Each kind of set in turn; about half of the problems have padded states and actions at any position."""
    state_mask = np.zeros((n_layers, n_states, n_batch), bool)
    action_mask = np.zeros((n_layers, n_states, n_actions, n_batch), bool)
    policy = np.zeros((n_layers, n_states, n_actions, n_batch))
    transition = np.zeros((n_layers - 1, n_states, n_actions, n_states, n_batch))
    lower, upper = np.zeros_like(transition), np.zeros_like(transition)
    for b in range(n_batch):
        padded, full_first_layer = rng.random() < 0.5, rng.random() < 0.3
        # The rows of padded pairs are 0, or what the confidence set of no visits is.
        blank = rng.random() < 0.5
        for k in range(n_layers):
            real = rng.random(n_states) < (0.6 if padded else 2.0)
            real[rng.integers(n_states)] = True
            if k == 0:
                real = (np.arange(n_states) == 0) | full_first_layer
            state_mask[k, :, b] = real
            for x in np.flatnonzero(real):
                allowed = rng.random(n_actions) < (0.6 if padded else 2.0)
                allowed[rng.integers(n_actions)] = True
                action_mask[k, x, :, b] = allowed
                n = int(allowed.sum())
                weights = rng.dirichlet(np.ones(n)) if rng.random() < 0.7 else np.eye(n)[rng.integers(n)]
                policy[k, x, allowed, b] = weights
        for k, x, a in np.ndindex(n_layers - 1, n_states, n_actions):
            real = state_mask[k + 1, :, b]
            if action_mask[k, x, a, b]:
                p, low, high = random_row(rng, real, KINDS[b % len(KINDS)])
                transition[k, x, a, :, b], lower[k, x, a, :, b], upper[k, x, a, :, b] = p, low, high
            elif not blank:
                upper[k, x, a, :, b] = real
    return Problems(policy, transition, lower, upper, state_mask, action_mask)


def random_member(rng: np.random.Generator, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """A point of one set [S]: a mixture of two corners, each filled in a random order; 0 if the row is padding."""
    if upper.sum() < 0.5:
        return np.zeros_like(lower)
    corners = []
    for _ in range(2):
        p = lower.copy()
        for i in rng.permutation(len(p)):
            p[i] += min(upper[i] - lower[i], max(0.0, 1.0 - p.sum()))
        corners.append(p)
    weight = rng.choice([0.0, 1.0, rng.random()])
    return weight * corners[0] + (1.0 - weight) * corners[1]


def random_members(rng: np.random.Generator, problems: Problems) -> np.ndarray:
    """[L-1, S, A, S, B]: a random transition function out of every problem's set."""
    members = np.zeros_like(problems.lower)
    for k, x, a, b in np.ndindex(*(problems.policy[:-1].shape)):
        members[k, x, a, :, b] = random_member(rng, problems.lower[k, x, a, :, b], problems.upper[k, x, a, :, b])
    return members
