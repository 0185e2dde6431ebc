"""The paper's mathematics as kernels: one formula each, for `jit`, `vmap` and `scan`, float32 and float64.

The problem's axes lead and the batch trails: batch rank = policy.ndim - 3, every argument carries those trailing
axes (size 1 broadcasts) and so do the results.
"""

from cpdpo_jax.kernels.bonus import dilated_bonus, exploration_bonus
from cpdpo_jax.kernels.dual import dual_max, lagrangian_loss
from cpdpo_jax.kernels.extreme import extreme_expectation
from cpdpo_jax.kernels.occupancy import occupancy_bounds
from cpdpo_jax.kernels.values import action_value, policy_value
from cpdpo_jax.kernels.widths import bernstein_width, confidence_set, hoeffding_width

__all__ = [
    "action_value",
    "bernstein_width",
    "confidence_set",
    "dilated_bonus",
    "dual_max",
    "exploration_bonus",
    "extreme_expectation",
    "hoeffding_width",
    "lagrangian_loss",
    "occupancy_bounds",
    "policy_value",
]
