"""What all tests share: strict promotion of types in most, in every thread and every process that a test starts.

Ranks may broadcast outside of tests/kernels: the batch trails everywhere, so that [B] beside [L,S,A,B] is meant. The
marker `strict_ranks` forbids it for a test, and `tests/kernels/conftest.py` for all kernels.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jax
import pytest

from cpdpo_jax.simulation import compiled_loop
from tests.support import FAST_COMPILE

# Not under strict promotion: what stands for a user's own program, and what starts processes of its own.
STANDARD = (
    "test_readme", "test_notebooks", "test_configurations", "learners/test_checking", "learners/test_environments",
    "sweeps/test_dask", "sweeps/test_engines", "sweeps/test_integrity", "sweeps/test_report", "sweeps/test_run",
    "sweeps/test_shards",
)  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before all fixtures; not a context, which worker threads would not see, and for processes too."""
    name = item.path.relative_to(Path(__file__).parent).with_suffix("").as_posix()
    promotion = "standard" if name in STANDARD else "strict"
    os.environ["JAX_NUMPY_DTYPE_PROMOTION"] = promotion
    jax.config.update("jax_numpy_dtype_promotion", promotion)


@pytest.fixture
def x64() -> Iterator[None]:
    """Run the test with JAX in double precision, and leave the setting as it was."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def standard_promotion(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Types are promoted as JAX does unless it is told otherwise: for code that stands for a user's."""
    monkeypatch.setenv("JAX_NUMPY_DTYPE_PROMOTION", "standard")
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    yield
    jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture
def fast_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulations of this process are compiled without optimising, for tests of what stands around them."""
    monkeypatch.setattr(compiled_loop, "program", lambda lanes: _fast_program())


@cache
def _fast_program() -> Any:
    """One for all tests: a shape is compiled once."""
    return compiled_loop.LearnerProgram(
        compiled_loop.advance_whole, static_argnums=(0, 5), donate_argnums=2, compiler_options=FAST_COMPILE
    )


@pytest.fixture(autouse=True)
def _ranks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where the marker `strict_ranks` stands, arrays of different rank do not broadcast in silence."""
    with jax.numpy_rank_promotion("raise" if request.node.get_closest_marker("strict_ranks") else "allow"):
        yield
