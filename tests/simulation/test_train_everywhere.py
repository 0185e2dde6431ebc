"""`make_train` with odd numbers of checkpoints and seeds, in both precisions, with strict rank promotion."""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import cpdpo_jax as cp
from experiments.faults.trains import fault
from tests.support import random_cmdp

DEVICES = {
    "XLA_FLAGS": os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2",
    "JAX_PLATFORMS": "cpu",
}
SHARDED = """
import itertools, sys
import jax, numpy as np
import cpdpo_jax as cp
from jax.sharding import NamedSharding, PartitionSpec as P
from tests.support import random_cmdp
for learner, states in itertools.product(sys.argv[1:], (2, 8)):  # 8: numba's kernels
    train = cp.make_train(learner, random_cmdp(2, states, 2, 1, seed=5), episodes=20, checkpoints=3, rho=0.3)
    alone = jax.jit(jax.vmap(train))(train.keys(64))
    for kind in (jax.sharding.AxisType.Explicit, jax.sharding.AxisType.Auto):
        mesh = jax.make_mesh((2,), ("seeds",), axis_types=(kind,))
        keys = jax.device_put(train.keys(64), NamedSharding(mesh, P("seeds")))
        run = jax.shard_map(jax.vmap(train), mesh=mesh, in_specs=P("seeds"), out_specs=P("seeds"))
        curves = jax.jit(run)(keys)
        assert len(curves.strong_regret.sharding.device_set) == 2
        for actual, other in zip(jax.tree.leaves(curves), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(actual, other, rtol=1e-4, atol=1e-4, err_msg=learner)
    assert len(np.unique(np.asarray(alone.strong_regret)[:, -1])) > 20 or learner == "uniform", learner
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("learner", ["cpdpo", "podb"])
def test_any_number_of_checkpoints_and_seeds_ends_with_exit_code_0(learner: str) -> None:
    assert fault(learner, (1, 7), (1, 3)) is None


def test_a_learner_that_is_unknown_is_found() -> None:
    found = fault("nobody", (1,), (1,))
    assert found is not None
    assert "exit code 1" in found


@pytest.mark.exhaustive
@pytest.mark.parametrize("learners", [("cpdpo",), ("triple_q", "uniform")])
def test_shard_map_with_checked_axes_on_explicit_and_auto_meshes(learners: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHARDED, *learners],
        env=os.environ | DEVICES,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_float64_without_x64_is_refused_and_with_it_is_float64() -> None:
    train = cp.make_train("cpdpo", random_cmdp(2, 2, 2, 1, seed=5), episodes=20, dtype="float64")
    assert train.instance.optimum.dtype == np.float64
    with pytest.raises(ValueError, match=r"dtype = 'float64' .* jax\.enable_x64\(True\)"):
        jax.jit(jax.vmap(train))(train.keys(2))
    with jax.enable_x64(True):
        curves = jax.jit(jax.vmap(train))(train.keys(2))
    assert curves.strong_regret.dtype == np.float64


@pytest.mark.strict_ranks
@pytest.mark.parametrize("learner", ["cpdpo", "opse", "uopt_rpgpd"])
def test_ranks_that_may_not_broadcast(learner: str) -> None:
    train = cp.make_train(learner, random_cmdp(2, 2, 2, 1, seed=5), episodes=20, rho=0.3)
    assert np.isfinite(jax.jit(jax.vmap(train))(train.keys(3)).strong_regret).all()
