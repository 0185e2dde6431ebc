"""Machine code in numba's cache, compiled by several processes: a process that loads all of it calls the right code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = """
import sys
import numpy as np, jax.numpy as jnp
from cpdpo_jax.kernels import root_value
from tests.kernels.machines.test_episode import LANES, model, plain_values, policies

size = (3, 9, 2, 2)
for kind in sys.argv[1:]:
    rng, models = np.random.default_rng(1), LANES if kind == "own" else 1
    of, policy = model(rng, size, models), policies(rng, size, LANES)
    found = root_value(*(jnp.asarray(array, jnp.float32) for array in (of["transition"], policy, of["payoff"])))
    for i in range(2):
        value = plain_values(of["transition"][..., -1], policy[..., -1], of["payoff"][i, ..., -1])
        np.testing.assert_allclose(found[i, -1], value, rtol=2e-6, err_msg=kind)
"""


@pytest.mark.exhaustive
def test_kernels_compiled_by_two_processes_are_told_apart_in_a_third(tmp_path: Path) -> None:
    """The same kernel for shared and for own models: numba names both alike, in each process its first function."""
    for kinds in (["shared"], ["own"], ["shared", "own"]):
        variables = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
        command = [sys.executable, "-c", SCRIPT, *kinds]
        done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-2000:]
    assert len(list(tmp_path.rglob("*.nbc"))) == 2
