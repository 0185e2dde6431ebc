"""The paper's mathematics as kernels: one formula per function, for `jit`, `vmap` and `scan`, float32 and float64.

The problem's axes come first and batch axes last: batch rank = policy.ndim - 3, and every argument and result has those
trailing axes (size 1 broadcasts). Zero, one or several batch axes are allowed; one is the fast layout. Some kernels
have faster forms for some machines, chosen at trace time; `paper_forms` turns them off (see `machines/README.md`).
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

from cpdpo_jax.common import former_names
from cpdpo_jax.kernels.bonus import dilated_bonus, exploration_bonus
from cpdpo_jax.kernels.dual import dual_max, lagrangian_loss
from cpdpo_jax.kernels.extreme import extreme_expectation
from cpdpo_jax.kernels.machines.target import paper_forms
from cpdpo_jax.kernels.maximiser import maximising_transition
from cpdpo_jax.kernels.occupancy import occupancy, occupancy_bounds
from cpdpo_jax.kernels.optimistic import optimistic_evaluation
from cpdpo_jax.kernels.path import sample_path
from cpdpo_jax.kernels.softmax import recentred, softmax_policy, uniform_policy
from cpdpo_jax.kernels.threefry import uniforms
from cpdpo_jax.kernels.values import action_value, policy_value, root_value, truncated_evaluation
from cpdpo_jax.kernels.widths import Epoch, bernstein_width, confidence_set, hoeffding_width, renew_epoch

__all__ = [
    "Epoch",
    "action_value",
    "bernstein_width",
    "confidence_set",
    "dilated_bonus",
    "dual_max",
    "exploration_bonus",
    "extreme_expectation",
    "hoeffding_width",
    "lagrangian_loss",
    "maximising_transition",
    "occupancy",
    "occupancy_bounds",
    "optimistic_evaluation",
    "paper_forms",
    "policy_value",
    "recentred",
    "renew_epoch",
    "root_value",
    "sample_path",
    "softmax_policy",
    "truncated_evaluation",
    "uniform_policy",
    "uniforms",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in former_names.KERNELS:
            raise AttributeError(f"module 'cpdpo_jax.kernels' has no attribute {name!r}; it has {', '.join(__all__)}.")
        module, _, new = former_names.KERNELS[name].partition(":")
        message = f"cpdpo_jax.kernels.{name} is now cpdpo_jax.kernels.{module}.{new}."
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(f"cpdpo_jax.kernels.{module}"), new)


def __dir__() -> list[str]:
    return sorted(__all__)
