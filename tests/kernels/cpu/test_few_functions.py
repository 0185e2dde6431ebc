"""What lies between foreign calls becomes one function each, and computes the same."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cpdpo_jax.kernels import cpu_acceleration, root_value
from cpdpo_jax.kernels.cpu.few_functions import in_few_functions
from cpdpo_jax.kernels.cpu.single_function import LARGEST_CONSTANT

SIZE = (3, 9, 2)  # more states than XLA's own form takes
LARGE = np.linspace(0, 1, LARGEST_CONSTANT, dtype=np.float32)  # four times what may stay inside of a function


def arrays() -> tuple[jax.Array, jax.Array, jax.Array]:
    rng = np.random.default_rng(0)
    rows = rng.random((SIZE[0] - 1, *SIZE[1:], SIZE[1], 1))
    policy = rng.random((*SIZE, 32))
    return (
        jnp.asarray(rows / rows.sum(axis=3, keepdims=True), jnp.float32),
        jnp.asarray(policy / policy.sum(axis=2, keepdims=True), jnp.float32),
        jnp.asarray(rng.random((2, *SIZE, 1)), jnp.float32),
    )


def between_calls(transition: jax.Array, policy: jax.Array, payoff: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Plain, foreign, plain, foreign, plain; an argument that only seems to be read; a small constant."""
    first = root_value(transition, policy * 0.5 + policy * policy * 0.5, payoff)
    again = root_value(transition, policy, payoff * (1 + first[0, 0]))
    return first + again * 2 + LARGE[None, :32], 0 * policy[0, 0, 0] + jnp.arange(32, dtype=jnp.float32)


def test_there_are_as_many_functions_as_there_are_gaps():
    text = jax.jit(in_few_functions(between_calls)).lower(*arrays()).as_text()
    assert text.count("cpdpo_jax_root_value") == 2
    assert "xla_cpu_small_call" in text
    assert text.count("call @inside") == 3
    with cpu_acceleration(False):
        assert "xla_cpu_small_call" not in jax.jit(in_few_functions(between_calls)).lower(*arrays()).as_text()


def test_it_computes_the_same_also_in_a_loop():
    def loop(function):
        def turn(i, policy):
            value, rest = function(arrays()[0], policy, arrays()[2])
            return policy * (1 + 1e-3 * (value[0] + rest))[None, None, None]

        return jax.jit(lambda policy: jax.lax.fori_loop(0, 5, turn, policy))(arrays()[1])

    np.testing.assert_allclose(loop(in_few_functions(between_calls)), loop(between_calls), rtol=1e-6)


def sliced(first: jax.Array) -> jax.Array:
    return jnp.asarray(LARGE)[:32]


def looked_up(first: jax.Array) -> jax.Array:
    return jax.lax.dynamic_slice_in_dim(jnp.asarray(LARGE), (first[0, 0] > 1).astype(jnp.int32), 32)


def sorted_constant(first: jax.Array) -> jax.Array:
    return jnp.sort(jnp.asarray(LARGE[:32]))


@pytest.mark.parametrize("constant", [sliced, looked_up, sorted_constant])
def test_a_constant_that_would_end_the_process_runs_the_plain_way(constant):
    def program(transition, policy, payoff):
        first = root_value(transition, policy * 0.5, payoff)
        return first[0] * 3 + constant(first)

    found = jax.jit(in_few_functions(program))(*arrays())
    np.testing.assert_allclose(found, jax.jit(program)(*arrays()), rtol=1e-6)


def test_a_program_without_foreign_calls_is_left_alone():
    def plain(x):
        return x * 2 + 1

    text = jax.jit(in_few_functions(plain)).lower(jnp.ones((4, 32))).as_text()
    assert "xla_cpu_small_call" not in text
    np.testing.assert_array_equal(in_few_functions(plain)(jnp.ones(3)), 3 * np.ones(3))
