"""The loop as one function: what it can not take runs the plain way, and never ends the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from cpdpo_jax.kernels.cpu.single_function import LARGEST_CONSTANT, single_cpu_function

ROOT = Path(__file__).parents[3]


def is_one_function(body: Any) -> bool:
    """Whether a loop of `body`(index, state [4,32]) is wrapped; lowered only, so that nothing can abort."""

    def program(state: jax.Array) -> Any:
        return single_cpu_function(lambda state: lax.fori_loop(0, 3, body, state), state)

    return "xla_cpu_small_call" in jax.jit(program).lower(jnp.ones((4, 32), jnp.float32)).as_text()


def entry(table: Any, state: jax.Array) -> jax.Array:
    return lax.dynamic_index_in_dim(table, (state[0, 0] > 1).astype(jnp.int32), 0)


def floats(n: int) -> np.ndarray:
    return np.linspace(0, 1, n, dtype=np.float32)


FITS, TOO_LARGE = floats(LARGEST_CONSTANT // 4), floats(LARGEST_CONSTANT // 4 + 1)


@pytest.mark.parametrize(
    ("body", "wrapped"),
    [
        (lambda i, s: s * 0.5 + 1, True),
        (lambda i, s: s + entry(FITS, s), True),
        (lambda i, s: s + entry(TOO_LARGE, s), False),
        (lambda i, s: s + entry(jnp.asarray(TOO_LARGE), s), False),
        (lambda i, s: jax.jit(lambda s: s + entry(TOO_LARGE, s))(s), False),
        (lambda i, s: lax.fori_loop(0, 2, lambda j, s: s + entry(TOO_LARGE, s), s), False),
        (lambda i, s: lax.cond(s[0, 0] > 0, lambda s: s + entry(TOO_LARGE, s), lambda s: s, s), False),
        (lambda i, s: s + entry(jnp.concatenate([FITS, FITS]), s), False),
        (lambda i, s: s + entry(jnp.pad(FITS, 9), s), False),
        (lambda i, s: s + (jnp.asarray(FITS)[:, None] * s[0])[:4], True),  # large, but not constant
        (lambda i, s: s + s.max(axis=0), False),
        (lambda i, s: s + jnp.zeros((90, 32), s.dtype).at[3].set(1)[:4], True),
        (lambda i, s: s.at[2].set(1), True),
        (lambda i, s: s.at[(s[0] > 1).astype(jnp.int32), jnp.arange(32)].set(1), False),
        (lambda i, s: s.at[::2, 1:].set(1), False),
        (lambda i, s: jnp.sort(s, axis=0), False),
    ],
)
def test_what_is_wrapped(body: Any, wrapped: bool) -> None:
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        assert is_one_function(body) == wrapped


def test_odd_learners_end_no_process() -> None:
    """A few of the campaign: large constants were reported to abort the process, these scatters to be UNIMPLEMENTED."""
    odd = ("constant of 2,600 floats on", "constant inside a scan", "scatter by what was seen", "scatter of a stride")
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-W", "ignore", "-m", "experiments.faults.learners", *odd]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["4 ran"], done.stdout + done.stderr[-2000:]
    assert done.returncode == 0
