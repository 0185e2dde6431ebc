"""`cp.make_train` compared with `simulate`: curves and time.

    python -m experiments.speed.train                       # 256 seeds, 100,000 episodes: a few minutes
    python -m experiments.speed.train --episodes 2000       # smaller

1. jax.jit(jax.vmap(train))(keys) at (5,5,3,2), compared with `simulate` and the plain `vmap` of the part `naive`: on
   one core, then on two, as two CPU devices with the keys sharded over them. Each in a separate process, compiled
   before it is timed, in turn; the minimum of the rounds counts.
2. One nested call, 3 instances x 4 hparams x 64 seeds, and `simulate` of the same.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

NAMES = (
    "strong_regret", "strong_violation", "weak_regret", "weak_violation", "regret_gap", "violation_gap", "multiplier",
    "epochs", "final_policy", "first_non_finite",
)  # fmt: skip
SIZE = (5, 5, 3, 2)
SAME_VECTORS = {"xla_cpu_prefer_vector_width": 512}  # as in `simulate`; an option of the outermost jit
WARM = 64  # episodes of the calls that only compile


def differing(curves: Any, data: Any) -> list[str]:
    """Names of the curves that differ from those of `simulate` in any bit, in the run's type."""
    import numpy as np

    def same(name: str) -> bool:
        ours = np.asarray(getattr(curves, name))
        return np.array_equal(ours, data[name].values.astype(ours.dtype))

    return [name for name in NAMES if not same(name)]


def timed(cores: int, seeds: int, episodes: int, rounds: int) -> dict[str, Any]:
    """In a process with `cores` cores and CPU devices: seconds of both and of naive `vmap`, and differing curves."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])  # before jax starts its threads

    import jax
    from jax.sharding import PartitionSpec

    import cpdpo_jax as cp
    from experiments.speed.naive import vmap_seconds
    from experiments.speed.timing import Size, instance

    cmdp = instance(Size(*SIZE))
    mapped = jax.vmap(train := cp.make_train("cpdpo", cmdp, episodes=episodes))
    if cores > 1:
        mesh = jax.make_mesh((cores,), ("device",), axis_types=(jax.sharding.AxisType.Auto,))
        shard = PartitionSpec("device")
        mapped = jax.shard_map(mapped, mesh=mesh, in_specs=shard, out_specs=shard, check_vma=False)
    keys = train.keys(seeds)
    program = jax.jit(mapped, compiler_options=SAME_VECTORS).lower(keys).compile()

    def simulate(episodes: int) -> Any:
        return cp.simulate("cpdpo", cmdp, episodes=episodes, seeds=seeds, progress=False)

    simulate(WARM)
    spent: dict[str, list[float]] = {"simulate": [], "train": []}
    result = curves = None
    for _ in range(rounds):
        result = _clocked(spent["simulate"], lambda: simulate(episodes))
        curves = _clocked(spent["train"], lambda: jax.block_until_ready(program(keys)))
    assert result is not None
    of_all = {name: min(times) for name, times in spent.items()}
    wrong = differing(curves, result.data.isel(learner=0, instance=0, hparams=0))
    naive = vmap_seconds(Size(*SIZE), seeds, 1.0)[1] * episodes if cores == 1 else None
    return {**of_all, "naive": naive, "differing": wrong}


def _clocked(spent: list[float], call: Callable[[], Any]) -> Any:
    started = time.perf_counter()
    made = call()
    spent.append(time.perf_counter() - started)
    return made


def nested(episodes: int) -> list[str]:
    """Names of the curves of a nested call that differ from `simulate` (3 instances, 4 hparams, 64 seeds)."""
    import jax

    import cpdpo_jax as cp

    cmdp = cp.envs.make("random", layers=3, states=3, actions=2, constraints=1, instances=3)
    grid = {"learning_rate": ["x0.5", "x1", "x2", "x4"]}
    train = cp.make_train("cpdpo", cmdp, episodes=episodes, hparams=grid)
    over_hparams = jax.vmap(jax.vmap(train, (0, None, None)), (None, 0, None))
    program = jax.jit(jax.vmap(over_hparams), compiler_options=SAME_VECTORS)
    curves = program(train.keys(64), train.hyper, train.instance)
    width = block_width(cmdp, 3 * 4 * 64)
    same = cp.simulate("cpdpo", cmdp, episodes=episodes, seeds=64, hparams=grid, block=width, progress=False)
    return differing(curves, same.data.isel(learner=0))


def block_width(cmdp: Any, lanes: int) -> int:
    """The lanes of a block of `train`: another width is another program, which may round differently."""
    from cpdpo_jax.learners import cpdpo
    from cpdpo_jax.simulation.lanes import block_sizes

    return block_sizes(cpdpo.LEARNER, cmdp.reward.shape[:3], lanes, workers=1).width


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=256)
    parser.add_argument("--episodes", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--cores", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--inside", type=int, default=0, help=argparse.SUPPRESS)  # a process that measures
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(timed(options.inside, options.seeds, options.episodes, options.rounds)))
        return
    wrong = nested(min(options.episodes, 2000))
    print(f"nested, 3 instances x 4 hparams x 64 seeds: {', '.join(wrong) or 'nothing'} differs from simulate")
    print("cores  simulate s  train s  ratio  naive vmap s  differing")
    for cores in options.cores:
        measured = _in_a_process(cores, options)
        naive = "" if measured["naive"] is None else f"{measured['naive']:.0f}"
        ratio = measured["train"] / measured["simulate"]
        line = f"{cores:<5}  {measured['simulate']:<10.1f}  {measured['train']:<7.1f}  {ratio:<5.2f}  {naive:<12}"
        print(f"{line}  {', '.join(measured['differing']) or 'nothing'}", flush=True)


def _in_a_process(cores: int, options: argparse.Namespace) -> dict[str, Any]:
    flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={cores}", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "experiments.speed.train", "--inside", str(cores)]
    command += ["--seeds", str(options.seeds), "--episodes", str(options.episodes), "--rounds", str(options.rounds)]
    done = subprocess.run(
        command,
        env=os.environ | flags,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
