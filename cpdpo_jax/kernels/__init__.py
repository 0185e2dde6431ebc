"""The paper's mathematics as kernels: one formula each, for `jit`, `vmap` and `scan`, float32 and float64.

The problem's axes lead and the batch trails: batch rank = policy.ndim - 3, every argument carries those trailing
axes (size 1 broadcasts) and so do the results. No batch axis, one or several will do; one is the fast layout.
On a CPU some of it runs as machine code made for CPUs: `cpu_acceleration` turns that off (see `cpu/README.md`).
"""

from cpdpo_jax.kernels.bonus import dilated_bonus, dilated_bonus_in_box, exploration_bonus
from cpdpo_jax.kernels.counters import uniforms
from cpdpo_jax.kernels.cpu.choice import replaced_by
from cpdpo_jax.kernels.cpu.switch import cpu_acceleration, cpu_acceleration_enabled
from cpdpo_jax.kernels.dual import dual_max, lagrangian_loss
from cpdpo_jax.kernels.extreme import Box, extreme_expectation, make_box
from cpdpo_jax.kernels.lookup import at_index, at_pairs
from cpdpo_jax.kernels.loops import (
    layer,
    scan_layers,
    scan_layers_backwards,
    unrolled_reduce,
    unrolled_sum,
    with_layer,
)
from cpdpo_jax.kernels.maximiser import maximising_transition
from cpdpo_jax.kernels.occupancy import occupancy, occupancy_bounds, occupancy_bounds_in_box
from cpdpo_jax.kernels.shapes import batch_shape
from cpdpo_jax.kernels.sums import compensated_add
from cpdpo_jax.kernels.target import for_accelerator, tracing_for
from cpdpo_jax.kernels.values import action_value, policy_value, root_value, truncated_evaluation
from cpdpo_jax.kernels.widths import bernstein_width, confidence_set, hoeffding_width

__all__ = [
    "Box",
    "action_value",
    "at_index",
    "at_pairs",
    "batch_shape",
    "bernstein_width",
    "compensated_add",
    "confidence_set",
    "cpu_acceleration",
    "cpu_acceleration_enabled",
    "dilated_bonus",
    "dilated_bonus_in_box",
    "dual_max",
    "exploration_bonus",
    "extreme_expectation",
    "for_accelerator",
    "hoeffding_width",
    "lagrangian_loss",
    "layer",
    "make_box",
    "maximising_transition",
    "occupancy",
    "occupancy_bounds",
    "occupancy_bounds_in_box",
    "policy_value",
    "replaced_by",
    "root_value",
    "scan_layers",
    "scan_layers_backwards",
    "tracing_for",
    "truncated_evaluation",
    "uniforms",
    "unrolled_reduce",
    "unrolled_sum",
    "with_layer",
]
