"""Constrained MDPs: build your own, draw them at random, or use those of the literature by name.

    cp.envs.names()                                  all names
    cp.envs.make("media_streaming", threshold=4)     a CMDP; a path that ends in .npz is loaded
    cp.envs.help("random")                           its parameters, source and deviations
    cp.envs.register(function)                       register your own under the function's name

Names load on first use: importing this package imports neither jax nor gymnasium nor matplotlib.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from cpdpo_jax.envs.registry import defaults as defaults
from cpdpo_jax.envs.registry import help as help
from cpdpo_jax.envs.registry import make as make
from cpdpo_jax.envs.registry import names as names
from cpdpo_jax.envs.registry import register as register
from cpdpo_jax.envs.registry import unregister as unregister

if TYPE_CHECKING:
    from cpdpo_jax.envs.adversarial import AdaptiveLosses as AdaptiveLosses
    from cpdpo_jax.envs.adversarial import Losses as Losses
    from cpdpo_jax.envs.adversarial import best_fixed_policy as best_fixed_policy
    from cpdpo_jax.envs.adversarial import chasing as chasing
    from cpdpo_jax.envs.adversarial import drifting as drifting
    from cpdpo_jax.envs.adversarial import fixed_policy_regret as fixed_policy_regret
    from cpdpo_jax.envs.adversarial import periodic as periodic
    from cpdpo_jax.envs.adversarial import switching as switching
    from cpdpo_jax.envs.episodic import layer_states as layer_states
    from cpdpo_jax.envs.episodic import original_units as original_units
    from cpdpo_jax.envs.grids import grid_of as grid_of
    from cpdpo_jax.envs.gym_tables import tabulate as tabulate
    from cpdpo_jax.envs.pictures import draw_cmdp as draw_cmdp
    from cpdpo_jax.envs.pictures import draw_grid_policy as draw_grid_policy

_WHERE = {
    "AdaptiveLosses": "adversarial",
    "Losses": "adversarial",
    "best_fixed_policy": "adversarial",
    "chasing": "adversarial",
    "draw_cmdp": "pictures",
    "draw_grid_policy": "pictures",
    "drifting": "adversarial",
    "fixed_policy_regret": "adversarial",
    "grid_of": "grids",
    "layer_states": "episodic",
    "original_units": "episodic",
    "periodic": "adversarial",
    "switching": "adversarial",
    "tabulate": "gym_tables",
}

__all__ = [
    "AdaptiveLosses",
    "Losses",
    "best_fixed_policy",
    "chasing",
    "defaults",
    "draw_cmdp",
    "draw_grid_policy",
    "drifting",
    "fixed_policy_regret",
    "grid_of",
    "help",
    "layer_states",
    "make",
    "names",
    "original_units",
    "periodic",
    "register",
    "switching",
    "tabulate",
    "unregister",
]


if not TYPE_CHECKING:  # checkers report unknown names

    def __getattr__(name: str) -> Any:
        if name in _WHERE:
            return getattr(importlib.import_module(f"cpdpo_jax.envs.{_WHERE[name]}"), name)
        raise AttributeError(f"module 'cpdpo_jax.envs' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return __all__
