"""Former names that still work in this release, all in one place; a use of most of them gives a warning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STORED = {"setting": "hparams"}  # names in stored files; keys of blocks are hashes that contain the former name
CONFIG_KEYS = {"settings": "hparams"}  # keys of TOML files and of `cp.run`
FLAGS = {"--setting": "--hparams PRESET", "--set": "--hparams NAME=VALUE"}  # of `cpdpo run`
LEARNERS = {"OURS": "BUILT_IN"}  # names in `cpdpo_jax.learners`
KERNELS = {  # names in `cpdpo_jax.kernels`: the module below it, and the name there
    "at_index": "lookup:at_index",
    "at_pairs": "lookup:at_pairs",
    "batch_shape": "shapes:batch_shape",
    "compensated_add": "sums:compensated_add",
    "count_episode": "counting:count_episode",
    "cpu_acceleration": "machines.target:cpu_acceleration",
    "kernel": "machines.forms:kernel",
    "layer": "loops:layer",
    "materialise": "tracing:materialise",
    "renewed_epoch": "widths:renew_epoch",
    "scaled_widths": "optimistic:scaled_widths",
    "scan_layers": "loops:scan_layers",
    "scan_layers_backwards": "loops:scan_layers_backwards",
    "steps_to_go": "optimistic:steps_to_go",
    "tracing_for": "machines.target:tracing_for",
    "unrolled_reduce": "loops:unrolled_reduce",
    "unrolled_sum": "loops:unrolled_sum",
    "varying": "tracing:mark_varying",
    "visited_pairs": "counting:visited_pairs",
    "visited_rows": "counting:visited_rows",
    "walk": "path:sample_path",
    "with_layer": "loops:with_layer",
}


def renamed(table: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The table with its former names replaced."""
    return {names.get(name, name): value for name, value in table.items()}
