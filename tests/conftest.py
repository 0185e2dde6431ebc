"""What all tests share: strict promotion of types in most, in every thread and every process that a test starts.

Compiling takes most of the suite's time, so XLA does not optimise (`FAST_COMPILE`), here and in those processes. Under
the marker `optimised` simulations and processes compile as for users: for tests of bits, of what optimisation may
break, and that compare a process with this one.
`CPDPO_XLA_OPTIONS=0` asks for XLA's defaults, also from the tests.

Ranks may broadcast outside of tests/kernels: the batch trails everywhere, so that [B] with [L,S,A,B] is intended. The
marker `strict_ranks` forbids it for a test, and `tests/kernels/conftest.py` for all kernels.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest

from cpdpo_jax.kernels.machines import programs
from tests.support import FAST, FAST_COMPILE, OPTIMISED

# Not under strict promotion: what stands for a user's own program, and what starts processes of its own.
STANDARD = (
    "test_readme", "test_notebooks", "test_configurations", "learners/test_checking", "learners/test_environments",
    "sweeps/test_dask", "sweeps/test_engines", "sweeps/test_integrity", "sweeps/test_report", "sweeps/test_run",
    "sweeps/test_shards",
)  # fmt: skip

_fast_flags = [f"--{name}={str(value).lower()}" for name, value in FAST_COMPILE.items()] if FAST else []
_given = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if flag not in _fast_flags]  # pytest-xdist inherits
_flags = {True: " ".join(_given), False: " ".join([*_given, *_fast_flags])}  # of tests that are optimised or not
os.environ["XLA_FLAGS"] = _flags[False]
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of workers: threads that spin take the cores of other workers
jax.jit(lambda x: x)(0)  # XLA reads the flags now, and never again
_users_options = programs.compiler_options


def _optimised() -> dict[str, Any]:
    return OPTIMISED | _users_options()


def pytest_collection_finish() -> None:
    """The modules stay: Python's garbage collector need not go through them again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before all fixtures; not a context, which worker threads would not see, and for processes too."""
    optimised = item.get_closest_marker("optimised") is not None
    programs.compiler_options = _optimised if optimised else _users_options
    os.environ["XLA_FLAGS"] = _flags[optimised]
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
    """JAX's default type promotion, for code that stands for a user's."""
    monkeypatch.setenv("JAX_NUMPY_DTYPE_PROMOTION", "standard")
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    yield
    jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture(autouse=True)
def _ranks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where the marker `strict_ranks` stands, arrays of different rank do not broadcast in silence."""
    strict = request.node.get_closest_marker("strict_ranks") is not None
    jax.config.update("jax_numpy_rank_promotion", "raise" if strict else "allow")  # `simulate` refuses the context
    yield
    jax.config.update("jax_numpy_rank_promotion", "allow")
