"""`train` on two devices by `jax.shard_map`, inside another jitted program, with two `vmap`s, in a separate process."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = '''
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import PartitionSpec as P
import cpdpo_jax as cp
from tests.support import random_cmdp

devices = jax.devices()
assert len(devices) == 2, devices
T, POINTS, SEEDS = 60, [1, 7, 20, 60], 128
rates = {"learning_rate": ["x1", "x4"]}
common = dict(episodes=T, checkpoints=POINTS, hparams=rates)
cmdp = random_cmdp(2, 2, 2, 1, seed=5)
train = cp.make_train("cpdpo", cmdp, **common)
mesh = jax.make_mesh((2,), ("device",), axis_types=(jax.sharding.AxisType.Auto,))

def both_hparams(keys, hyper):
    return jax.vmap(jax.vmap(train, (0, None)), (None, 0))(keys, hyper)  # [hparams, seeds]

@jax.jit
def program(keys, hyper, factor):
    """A user's program around it that computes with the curves."""
    sharded = jax.shard_map(
        both_hparams, mesh=mesh, in_specs=(P("device"), P()), out_specs=P(None, "device"), check_vma=False
    )
    curves = sharded(keys, hyper)
    return curves, factor * curves.strong_regret[..., -1]

curves, scaled = program(train.keys(SEEDS), train.hyper, 2.0)
assert len(curves.strong_regret.sharding.device_set) == 2, curves.strong_regret.sharding
data = cp.simulate("cpdpo", cmdp, seeds=SEEDS, block=128, progress=False, **common).data
data = data.isel(learner=0, instance=0)
for name in ("strong_regret", "strong_violation", "weak_regret", "multiplier", "epochs", "final_policy"):
    ours = np.asarray(getattr(curves, name))
    np.testing.assert_array_equal(ours, data[name].values.astype(ours.dtype), err_msg=name)
np.testing.assert_array_equal(scaled, 2 * np.asarray(curves.strong_regret)[..., -1])
assert len(np.unique(data.strong_regret.values[..., -1])) > 100
print("the same on two devices")
'''


def test_shard_map_over_two_devices_in_a_program_of_ones_own():
    """64 seeds and two hparams on each device: 128 lanes there, and in `simulate`'s blocks."""
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    variables = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=variables, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "the same on two devices" in done.stdout
