"""What all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture
def x64() -> Iterator[None]:
    """Run the test with JAX in double precision, and leave the setting as it was."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True)
def _strict_numerics(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where the marker `strict_numerics` stands, types and ranks are not promoted in silence.

    `strict_numerics(rank="allow")` is for types alone: the batch trails, so that [B] beside [L,S,A,B] is meant.
    """
    marker = request.node.get_closest_marker("strict_numerics")
    if marker is None:
        yield
        return
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion(marker.kwargs.get("rank", "raise")):
        yield
