"""The kernels are tested with JAX's strict promotion of dtypes and ranks: nothing widens or broadcasts unasked."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True)
def strict_promotion() -> Iterator[None]:
    """No implicit promotion of dtypes, and none of ranks."""
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield
