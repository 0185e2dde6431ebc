"""Tests run with strict promotion of types, and of ranks where they are marked: in threads and processes as well."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import jax.numpy as jnp
import pytest

WHOLE, REAL, TABLE = jnp.ones(3, jnp.int32), jnp.ones(3, jnp.float32), jnp.ones((2, 3), jnp.float32)


def _refuses_types() -> None:
    with pytest.raises(Exception, match="promotion"):
        jnp.add(WHOLE, REAL)
    assert (2 * REAL + 1 == 3).all()  # numbers of Python take the type they meet


def test_types_are_not_promoted() -> None:
    _refuses_types()
    assert (REAL + TABLE).shape == (2, 3)  # ranks are


def test_nor_in_a_thread() -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(_refuses_types).result(timeout=300)


def test_nor_in_a_process() -> None:
    ask = "import jax; print(jax.config.jax_numpy_dtype_promotion)"
    assert subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, timeout=600).stdout == "strict\n"


@pytest.mark.strict_ranks
def test_nor_are_ranks_where_the_marker_stands() -> None:
    _refuses_types()
    with pytest.raises(ValueError, match="rank"):
        jnp.add(REAL, TABLE)
