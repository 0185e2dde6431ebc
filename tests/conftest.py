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
