"""What a GPU would be asked to do, by XLA's own GPU compiler, on a machine without a GPU.

The loop is compiled for a target whose description is a file in `targets/`; nothing is run. Needs jax's CUDA plugin, in
an environment of its own:

    python -m venv gpu && gpu/bin/pip install "cpdpo_jax[cuda12]"
    gpu/bin/cpdpo bench --part device --target h100

Kernels, copies, waits and bytes are counted in the compiled program, command buffers in XLA's list of what its runtime
will do. Times are an estimate from these counts: no kernel was timed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import tempfile
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from cpdpo_jax.cli.bench.program_text import one_turn
from cpdpo_jax.cli.bench.simulator import Size, Worker
from cpdpo_jax.common.machine import cores

TARGETS = Path(__file__).with_name("targets")
LANES = 4096
TRACED_LANES = 32  # what the instance is built with; the shapes are then widened
LAUNCH, WAIT = 2e-6, 10e-6  # seconds of a kernel's or copy's launch, and of a host that waits for its device
PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")
COMMAND = 'python -m venv gpu && gpu/bin/pip install "cpdpo_jax[cuda12]"; then gpu/bin/cpdpo bench --part device'


def names() -> list[str]:
    """The devices that are described."""
    return sorted(path.stem for path in TARGETS.glob("*.textproto"))


def check(target: str) -> None:
    """Refuse a target that is not described, and an environment that can not compile for it."""
    if target not in names():
        raise ValueError(f"target = {target!r} is not known; choose from {', '.join(names())}.")
    if not any(importlib.util.find_spec(plugin) for plugin in PLUGINS):
        raise ValueError(f"target = {target!r} needs jax's CUDA plugin in an environment of its own: {COMMAND}.")


def report(size: Size, lanes: int, learner: str, target: str, *, plain: bool = False) -> dict[str, Any]:
    """Compile the loop of a learner in a fresh process and count; `plain`: in the form that a CPU gets, to compare."""
    with tempfile.TemporaryDirectory(prefix="cpdpo_device_") as directory:
        flags = "--xla_gpu_autotune_level=0 --xla_dump_hlo_as_text --xla_dump_hlo_module_re=.*advance.*"
        wanted = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"{flags} --xla_dump_to={directory}"}
        before = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)  # autotuning would want a device; the process that is started inherits it
        try:
            with Worker(cores()) as worker:
                return worker(partial(compiled, plain=plain), size, lanes, learner, target, directory)
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


def compiled(size: Size, lanes: int, learner: str, target: str, directory: str, *, plain: bool) -> dict[str, Any]:
    """`report`, in a process that was started for it."""
    import jax

    from cpdpo_jax.cli.bench import block as blocks
    from cpdpo_jax.kernels import cpu_acceleration, tracing_for
    from cpdpo_jax.simulation import compiled_loop

    jax.config.update("jax_enable_compilation_cache", False)  # a program that is read compiles nothing
    description = (TARGETS / f"{target}.textproto").read_text()
    with nullcontext() if plain else tracing_for("gpu"):
        block = blocks.start(size, TRACED_LANES, learner)
    stretch = 1 if plain else compiled_loop.STRETCH
    shapes = partial(_shapes, _sharding(description), lanes)
    loop = jax.jit(partial(compiled_loop.advance_whole, block.learner, block.noise, stretch=stretch), donate_argnums=1)
    with cpu_acceleration(False) if plain else tracing_for("gpu"):
        given = shapes((block.lanes, block.state, jax.numpy.int32(0), jax.numpy.int32(stretch)))
        lowered = loop.trace(*given).lower(lowering_platforms=("cuda",))
    started = time.perf_counter()
    program = lowered.compile()
    seconds = time.perf_counter() - started
    count, turns = one_turn(program.as_text() or "", depth=1 if stretch == 1 else 2)
    thunks = next(Path(directory).glob("*thunk_sequence_after_thunk_passes.txt")).read_text()
    scratch = getattr(program.memory_analysis(), "temp_size_in_bytes", 0)
    waits = count.conditionals + count.open_loops + (1 if turns is None else 1 / turns)
    bandwidth = float(re.search(r"memory_bandwidth: (\d+)", description)[1])  # pyright: ignore[reportOptionalSubscript]
    estimate = LAUNCH * (count.kernels + count.copies) + WAIT * waits + count.moved_bytes / bandwidth
    return {
        "size": list(size),
        "lanes": lanes,
        "learner": learner,
        "target": target,
        "kernels_per_episode": count.kernels,
        "copies_per_episode": count.copies,
        "copied_bytes_per_seed": count.copied_bytes / lanes,
        "host_waits_per_episode": waits,
        "command_buffers_per_episode": command_buffers(thunks, depth=1 if stretch == 1 else 2),
        "scratch_bytes_per_seed": scratch / lanes,
        "state_bytes_per_seed": blocks.bytes_per_lane(block.state, TRACED_LANES),
        "moved_bytes_per_seed": count.moved_bytes / lanes,
        "compile_seconds": seconds,
        "estimated_microseconds_per_episode": 1e6 * estimate,
        "estimated_microseconds_per_seed": 1e6 * estimate / lanes,
    }


def _sharding(description: str) -> Any:
    """Of arrays on the absent device."""
    import jax
    from jax.experimental import topologies

    topology = topologies.get_topology_desc(platform="cuda", target_config=description, topology="1x1x1")
    mesh = topologies.make_mesh(topology, (1,), ("x",))
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())


def _shapes(sharding: Any, lanes: int, tree: Any) -> Any:
    """Arrays of `TRACED_LANES` lanes as the shapes of `lanes`."""
    import jax

    def widened(leaf: Any) -> Any:
        wide = leaf.ndim and leaf.shape[-1] == TRACED_LANES
        return jax.ShapeDtypeStruct((*leaf.shape[:-1], lanes) if wide else leaf.shape, leaf.dtype, sharding=sharding)

    return jax.tree.map(widened, tree)


def command_buffers(thunks: str, depth: int) -> int:
    """How many command buffers (CUDA graphs) an episode launches, and 1 for every piece of work outside of them.

    In XLA's list each nested thing is indented by four more; those of an episode lie inside `depth` loops.
    """
    inside, count = 4 * depth, 0
    for line in thunks.splitlines():
        entry = re.match(r"^( *)\d+: (k\w+)", line)
        if entry and len(entry[1]) == inside:
            count += 1
    return count - 1  # the loop's own condition
