"""cpdpo_jax: online learning in constrained MDPs, simulated in batches.

    import cpdpo_jax as cp

Names load on first use, so that `import cpdpo_jax` and `cpdpo --help` do not wait for jax.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cpdpo_jax import envs as envs
    from cpdpo_jax import kernels as kernels
    from cpdpo_jax.envs.arrays import from_arrays as from_arrays
    from cpdpo_jax.envs.build import make_cmdp as make_cmdp
    from cpdpo_jax.envs.build import stack as stack
    from cpdpo_jax.envs.build import unstack as unstack
    from cpdpo_jax.envs.episodic import from_episodic as from_episodic
    from cpdpo_jax.envs.files import load_cmdp as load_cmdp
    from cpdpo_jax.envs.files import save_cmdp as save_cmdp
    from cpdpo_jax.envs.gym import to_gymnasium as to_gymnasium
    from cpdpo_jax.oracle import InfeasibleError as InfeasibleError
    from cpdpo_jax.oracle import Solution as Solution
    from cpdpo_jax.oracle import solve as solve
    from cpdpo_jax.result import NonFiniteError as NonFiniteError
    from cpdpo_jax.result import Result as Result
    from cpdpo_jax.simulation import simulate as simulate
    from cpdpo_jax.types import CMDP as CMDP
    from cpdpo_jax.types import Trajectory as Trajectory
    from cpdpo_jax.types import Units as Units

__version__ = "0.1.0"

_WHERE = {
    "CMDP": "cpdpo_jax.types",
    "InfeasibleError": "cpdpo_jax.oracle",
    "NonFiniteError": "cpdpo_jax.result",
    "Result": "cpdpo_jax.result",
    "Solution": "cpdpo_jax.oracle",
    "Trajectory": "cpdpo_jax.types",
    "Units": "cpdpo_jax.types",
    "from_arrays": "cpdpo_jax.envs.arrays",
    "from_episodic": "cpdpo_jax.envs.episodic",
    "load_cmdp": "cpdpo_jax.envs.files",
    "make_cmdp": "cpdpo_jax.envs.build",
    "save_cmdp": "cpdpo_jax.envs.files",
    "simulate": "cpdpo_jax.simulation",
    "solve": "cpdpo_jax.oracle",
    "stack": "cpdpo_jax.envs.build",
    "to_gymnasium": "cpdpo_jax.envs.gym",
    "unstack": "cpdpo_jax.envs.build",
}
_MODULES = ("envs", "kernels", "learners", "settings")

__all__ = [*sorted(_WHERE), *_MODULES]


def __getattr__(name: str):
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"cpdpo_jax.{name}")
    raise AttributeError(f"module 'cpdpo_jax' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
