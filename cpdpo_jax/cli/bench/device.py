"""What a GPU would be asked to do, where not even its compiler is here (`gpu` asks that).

Kernels per episode are counted in the program that XLA's CPU compiler makes of the loop over episodes: a stand-in,
because its GPU compiler fuses otherwise.
"""

from __future__ import annotations

from typing import Any

from cpdpo_jax.cli.bench import block as blocks
from cpdpo_jax.cli.bench.program_text import one_turn
from cpdpo_jax.cli.bench.simulator import Size
from cpdpo_jax.kernels import cpu_acceleration
from cpdpo_jax.simulation import compiled_loop


def device(size: Size, lanes: int) -> dict[str, Any]:
    """Kernels per episode, and bytes per seed."""
    block = blocks.start(size, lanes)
    with cpu_acceleration(False):  # as for a GPU
        lowered = compiled_loop.program(block.lanes).lower(block.learner, block.noise, block.lanes, block.state, 0, 1)
        program = lowered.compile()
    count, _ = one_turn(program.as_text() or "")
    scratch = getattr(program.memory_analysis(), "temp_size_in_bytes", None)
    return {
        "size": list(size),
        "lanes": lanes,
        "kernels_per_episode": count.kernels + count.copies,
        "of_which_fusions": count.fusions,
        "state_bytes_per_seed": round(blocks.bytes_per_lane(block.state, lanes)),
        "constant_bytes_per_seed": round(blocks.bytes_per_lane(block.lanes, lanes)),
        "scratch_bytes_per_seed": None if scratch is None else round(scratch / lanes),
    }
