"""The kernels are also tested with strict rank promotion: nothing broadcasts implicitly."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True)
def strict_ranks() -> Iterator[None]:
    """No implicit promotion of ranks."""
    with jax.numpy_rank_promotion("raise"):
        yield
