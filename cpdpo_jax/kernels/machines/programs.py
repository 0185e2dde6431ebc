"""Whole programs on the target: compiler options, the length of the inner loop, lanes per block, threads."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax

from cpdpo_jax.common import xla_options
from cpdpo_jax.common.machine import cores
from cpdpo_jax.common.notices import warn_once
from cpdpo_jax.kernels.machines.sizes import (
    ACCELERATOR_LANES,
    ACCELERATOR_LOOP_LENGTH,
    CPU_COUNT_BYTES,
    CPU_LANES,
    LANE_MULTIPLE,
    SIMD_LANES,
)
from cpdpo_jax.kernels.machines.target import for_accelerator, only_paper_forms, target_platform


def inner_loop_length() -> int:
    """Episodes of an inner loop of known length: accelerators synchronise with the host once per loop; 1 on a CPU."""
    return ACCELERATOR_LOOP_LENGTH if for_accelerator() else 1


def runs_wide_launches() -> bool:
    """Whether a launch should have as many lanes as fit, because padding is cheap: on accelerators."""
    return for_accelerator()


def parallel_blocks(devices: int) -> int:
    """The number of blocks that run at the same time: one per core, or one per accelerator."""
    return devices if for_accelerator() else max(devices, cores())


def compiling_threads() -> int:
    """Additional threads that only compile: one with accelerators, whose hosts are idle."""
    return int(for_accelerator())


def max_lanes(shape: Sequence[int]) -> int:
    """Maximum lanes of a block of shape (L, S, A): as many as fit a CPU's caches or half of an accelerator's memory."""
    if not for_accelerator():
        n_layers, n_states, n_actions = shape
        return CPU_LANES if 4 * CPU_LANES * n_layers * n_states**2 * n_actions <= CPU_COUNT_BYTES else LANE_MULTIPLE
    memory = _device_memory()
    return ACCELERATOR_LANES if memory is None else min(ACCELERATOR_LANES, memory // 2 // _bytes_per_lane(shape))


def launch_lanes(width: int, shape: Sequence[int]) -> int:
    """Lanes of a launch of blocks of `width` lanes: their width on a CPU, as many as fit an accelerator."""
    if not for_accelerator():
        return width
    lanes = max_lanes(shape)
    multiple = 2 * LANE_MULTIPLE if lanes >= 2 * LANE_MULTIPLE else LANE_MULTIPLE
    return max(width, lanes // multiple * multiple)


def describe_launch(width: int, shape: Sequence[int]) -> str:
    """The reason for `launch_lanes`."""
    if not for_accelerator():
        return f"block = {width}; a CPU runs one launch per core"
    limit, memory = f"packs of blocks; {target_platform()}: at most {ACCELERATOR_LANES:,}", _device_memory()
    if memory is None:
        return f"{limit}, the device does not report its memory"
    return f"{limit}, and half of {memory / 1e9:.0f} GB holds {memory // 2 // _bytes_per_lane(shape):,}"


def padded_lanes(lanes: int, narrow: bool) -> int:
    """The width of a block of `lanes` with padding: a multiple of `LANE_MULTIPLE`, or one vector of a CPU if `narrow`.

    `narrow` is allowed if a lane of the program is bit-identical in blocks of one vector and of several.
    """
    one_vector = narrow and lanes <= SIMD_LANES and not for_accelerator() and not only_paper_forms()
    return SIMD_LANES if one_vector else math.ceil(lanes / LANE_MULTIPLE) * LANE_MULTIPLE


def _bytes_per_lane(shape: Sequence[int]) -> int:
    """Approximate memory of a lane of shape (L, S, A): counts, confidence sets, sums and scratch."""
    n_layers, n_states, n_actions = shape
    return 16 * n_layers * n_states * n_actions * (n_states + 4)


def _device_memory() -> int | None:
    """Memory in bytes that jax may use on its device; None if the device does not report it."""
    return (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")


def compiler_options() -> dict[str, Any]:
    """XLA's options for whole programs; empty except on CPUs."""
    if only_paper_forms() or not _runs_on_cpu():
        return {}
    options = {"xla_cpu_prefer_vector_width": xla_options.VECTOR_BITS}  # a fifth of the time, with such vectors
    return {name: value for name, value in options.items() if _is_accepted(name, value)}


def warn_if_options_are_missing() -> None:
    """One RuntimeWarning per process if the package was imported too late to set XLA's options for CPUs."""
    if xla_options.were_too_late() and _runs_on_cpu():
        warn_once(
            "XLA's options",
            "jax started its backend before cpdpo_jax was imported, so XLA's options for fast loops are not set and "
            f"programs run more slowly. Import cpdpo_jax before the first computation, or set {xla_options.VARIABLE}=0 "
            "to silence this warning.",
        )


def _runs_on_cpu() -> bool:
    return not for_accelerator() and jax.default_backend() == "cpu"


@functools.cache
def _is_accepted(name: str, value: Any) -> bool:
    """Whether this jaxlib knows an option; a program with an unknown option does not compile."""
    try:
        jax.jit(lambda x: x + 1, compiler_options={name: value}).lower(0).compile()
    except Exception:  # whatever the error, the option is left out
        return False
    return True
