"""Estimates the work of a GPU from XLA's GPU compiler, on a machine without a GPU.

The loop is compiled for a target that a file in `targets/` describes; nothing is run. This needs jax's CUDA plugin, in
a separate environment:

    python -m venv gpu && gpu/bin/pip install ".[cuda12]"
    gpu/bin/python -m experiments.speed --part gpu --target h100

Kernels, copies, waits and bytes are counted in the compiled program, command buffers in XLA's list of what its runtime
will do. Times are an estimate from these counts: no kernel was timed.
"""

from __future__ import annotations

import importlib.util
import re
import tempfile
import time
from pathlib import Path
from typing import Any

from cpdpo_jax.common.machine import cores
from experiments.speed.process import process
from experiments.speed.program_text import one_iteration
from experiments.speed.timing import Size

TARGETS = Path(__file__).with_name("targets")
LAUNCH, WAIT = 2e-6, 10e-6  # seconds of a launch (kernel or copy), and of a host synchronisation
PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")


def names() -> list[str]:
    """The available device descriptions."""
    return sorted(path.stem for path in TARGETS.glob("*.textproto"))


def check(target: str) -> None:
    """Raise if the environment cannot compile for a GPU."""
    if not any(importlib.util.find_spec(plugin) for plugin in PLUGINS):
        raise ValueError(
            f"target = {target!r} needs jax's CUDA plugin; install it into a separate environment: "
            'python -m venv gpu && gpu/bin/pip install ".[cuda12]".'
        )


def report(size: Size, lanes: int, learner: str, target: str) -> dict[str, Any]:
    """Compile the loop of a learner in a fresh process and count."""
    with tempfile.TemporaryDirectory(prefix="cpdpo_gpu_") as directory:
        flags = "--xla_gpu_autotune_level=0 --xla_dump_hlo_as_text --xla_dump_hlo_module_re=.*episodes.*"
        environment = {  # autotuning needs a device; a cached program would not be dumped
            "JAX_PLATFORMS": "cpu",
            "JAX_ENABLE_COMPILATION_CACHE": "0",
            "XLA_FLAGS": f"{flags} --xla_dump_to={directory}",
        }
        with process(cores(), environment) as call:
            return call(compiled, size, lanes, learner, target, directory)


def compiled(size: Size, lanes: int, learner: str, target: str, directory: str) -> dict[str, Any]:
    """`report`, in its own process."""
    from experiments.speed import internals

    description = (TARGETS / f"{target}.textproto").read_text()
    lowered, state_bytes = internals.lower_for_gpu(size, lanes, learner, _sharding(description))
    started = time.perf_counter()
    program = lowered.compile()
    seconds = time.perf_counter() - started
    count, iterations = one_iteration(program.as_text() or "", internals.LOOPS)
    thunks = next(Path(directory).glob("*thunk_sequence_after_thunk_passes.txt")).read_text()
    waits = count.conditionals + count.open_loops + (1 if iterations is None else 1 / iterations)
    bandwidth = float(re.search(r"memory_bandwidth: (\d+)", description)[1])  # pyright: ignore[reportOptionalSubscript]
    estimate = LAUNCH * (count.kernels + count.copies) + WAIT * waits + count.moved_bytes / bandwidth
    return {
        "size": list(size),
        "lanes": lanes,
        "learner": learner,
        "target": target,
        "kernels_per_episode": count.kernels,
        "copies_per_episode": count.copies,
        "host_waits_per_episode": waits,
        "command_buffers_per_episode": command_buffers(thunks, internals.LOOPS),
        "scratch_bytes_per_seed": getattr(program.memory_analysis(), "temp_size_in_bytes", 0) / lanes,
        "state_bytes_per_seed": state_bytes,
        "moved_bytes_per_seed": count.moved_bytes / lanes,
        "compile_seconds": seconds,
        "estimated_microseconds_per_episode": 1e6 * estimate,
        "estimated_microseconds_per_seed": 1e6 * estimate / lanes,
    }


def _sharding(description: str) -> Any:
    """The sharding of arrays on the absent device."""
    import jax
    from jax.experimental import topologies

    topology = topologies.get_topology_desc(platform="cuda", target_config=description, topology="1x1x1")
    mesh = topologies.make_mesh(topology, (1,), ("x",))
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())


def command_buffers(thunks: str, depth: int) -> int:
    """Command buffers (CUDA graphs) that an episode launches, and 1 for every piece of work outside of them.

    XLA's list indents nested entries by four more; those of an episode lie inside `depth` loops.
    """
    inside, count = 4 * depth, 0
    for line in thunks.splitlines():
        entry = re.match(r"^( *)\d+: (k\w+)", line)
        if entry and len(entry[1]) == inside:
            count += 1
    return count - 1  # the loop's own condition
