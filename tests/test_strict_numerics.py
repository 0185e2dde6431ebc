"""The marker `strict_numerics` does what it says, and nothing where it does not stand."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

WHOLE, REAL, TABLE = jnp.ones(3, jnp.int32), jnp.ones(3, jnp.float32), jnp.ones((2, 3), jnp.float32)


@pytest.mark.strict_numerics
def test_neither_types_nor_ranks_are_promoted():
    with pytest.raises(Exception, match="promotion"):
        jnp.add(WHOLE, REAL)
    with pytest.raises(ValueError, match="rank"):
        jnp.add(REAL, TABLE)
    assert (2 * REAL + 1 == 3).all()  # numbers of Python take the type they meet


@pytest.mark.strict_numerics(rank="allow")
def test_types_alone():
    with pytest.raises(Exception, match="promotion"):
        jnp.add(WHOLE, REAL)
    assert (REAL + TABLE).shape == (2, 3)


def test_without_the_marker_both_are():
    assert (WHOLE + REAL + TABLE).dtype == jnp.float32
