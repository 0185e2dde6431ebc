"""jax as users set it up: double precision on, ranks that raise, no compilation, several devices. Each in a process.

A small run and the kernels, in every configuration; where the arithmetic is the same the bits must be.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]

SCRIPT = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
import cpdpo_jax as cp
rng = np.random.default_rng(0)
p = rng.dirichlet(np.ones(2), (1, 2, 2))
cmdp = cp.make_cmdp(p, rng.random((2, 2, 2)), rng.random((1, 2, 2, 2)), [1.3])
output = {}
for name in sys.argv[1].split():
    run = cp.simulate(name, cmdp, episodes=int(sys.argv[2]), seeds=2, progress=False)
    output[name] = run.data.strong_regret.isel(episode=-1).values.ravel().tolist()
policy = jnp.full((2, 2, 2, 1), 0.5, jnp.float32)
lower, upper = (jnp.asarray(x[..., None], jnp.float32) for x in (0.5 * p, np.minimum(1.5 * p, 1)))
low, up = cp.kernels.occupancy_bounds(policy, lower, upper)
value = cp.kernels.policy_value(lower, policy, policy[None])
assert low.dtype == up.dtype == value.dtype == jnp.float32
output["kernels"] = [float(x.sum()) for x in (low, up, value)]
print(json.dumps(output))
"""

SMALL = "cpdpo optcmdp"
EVERY = "cpdpo cpd_oppo ghosh optdual optpess_primaldual optprimaldual regularized_primal_dual triple_q uopt_rpgpd"


EPISODES = 3  # without compilation an episode takes a second


def run(learners: str, **environment: str) -> dict[str, Any]:
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", **environment}
    command = [sys.executable, "-c", SCRIPT, learners, str(EPISODES)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def usual() -> dict[str, Any]:
    return run(SMALL)


def test_double_precision_ranks_that_raise_and_two_devices_change_no_bit(usual: dict[str, Any]) -> None:
    two = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    assert run(SMALL, JAX_ENABLE_X64="1", JAX_NUMPY_RANK_PROMOTION="raise", XLA_FLAGS=two) == usual


@pytest.mark.exhaustive
def test_without_compilation(usual: dict[str, Any]) -> None:
    """Operation by operation: slow, rounded otherwise, and the same up to that."""
    output = run(SMALL, JAX_DISABLE_JIT="1")
    for name, values in usual.items():
        assert output[name] == pytest.approx(values, rel=1e-5), name


@pytest.mark.exhaustive
def test_every_learner_with_double_precision_on() -> None:
    assert run(EVERY, JAX_ENABLE_X64="1") == run(EVERY)
