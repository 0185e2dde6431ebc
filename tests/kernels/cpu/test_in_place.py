"""Arrays that are changed where they lie: the same results as without, mapped, differentiated and switched off too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cpdpo_jax.kernels import cpu_acceleration
from cpdpo_jax.kernels.cpu import in_place


def _raised(state, reads):
    return jax.tree.map(lambda one: one + reads, state)


@pytest.mark.parametrize("enabled", [True, False])
def test_a_change_happens_once_and_only_if_asked(enabled):
    state, reads = {"a": jnp.arange(4.0), "b": jnp.zeros(4)}, jnp.asarray([1.0, 2.0, 3.0, 4.0])
    with cpu_acceleration(enabled):
        changed = jax.jit(lambda state, reads: in_place.changed(_raised, state, reads))(state, reads)
        np.testing.assert_array_equal(changed["a"], state["a"] + reads)
        np.testing.assert_array_equal(changed["b"], state["b"] + reads)
        for when in (True, False):
            asked = jax.jit(lambda when, *given: in_place.changed_if(when, _raised, *given))
            told, after = asked(jnp.asarray(when), state, reads, 7 * reads)
            np.testing.assert_array_equal(told["a"], state["a"] + reads * float(when))
            np.testing.assert_array_equal(after, 7 * reads)


@pytest.mark.parametrize("value", [0.0, -3.0, np.inf, -np.inf, np.nan])
def test_whatever_the_numbers_are(value):
    """The question that the compiler can not answer is answered with yes for every number, and for what is none."""
    array = jnp.asarray([1.0, 2.0, value])
    np.testing.assert_array_equal(jax.jit(lambda x: in_place.stored(2 * x))(array), 2 * array)
    whole = jnp.asarray([3, -5])
    np.testing.assert_array_equal(jax.jit(in_place.stored)(whole), whole)


def test_mapped_and_differentiated():
    states, reads = jnp.arange(6.0).reshape(2, 3), jnp.asarray([[1.0], [2.0]])
    when = jnp.asarray([True, False])
    mapped = jax.vmap(lambda when, state, reads: in_place.changed_if(when, _raised, state, reads, reads)[0])
    np.testing.assert_array_equal(mapped(when, states, reads), [[1, 2, 3], [3, 4, 5]])
    gradient = jax.grad(lambda x: (in_place.stored(x**2) * in_place.changed(_raised, x, x)).sum())
    np.testing.assert_allclose(gradient(jnp.asarray([1.0, 2.0])), [6.0, 24.0])  # of 2 x^3
