"""cpdpo_jax: online learning in constrained MDPs, simulated in batches.

    import cpdpo_jax as cp

Names load on first use, so that `import cpdpo_jax` and `cpdpo --help` do not wait for jax.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from cpdpo_jax.common import describing

if TYPE_CHECKING:
    from cpdpo_jax import envs as envs
    from cpdpo_jax import kernels as kernels
    from cpdpo_jax.common.types import CMDP as CMDP
    from cpdpo_jax.common.types import Trajectory as Trajectory
    from cpdpo_jax.common.types import Units as Units
    from cpdpo_jax.envs.arrays import from_arrays as from_arrays
    from cpdpo_jax.envs.build import make_cmdp as make_cmdp
    from cpdpo_jax.envs.build import stack as stack
    from cpdpo_jax.envs.build import unstack as unstack
    from cpdpo_jax.envs.episodic import from_episodic as from_episodic
    from cpdpo_jax.envs.files import load_cmdp as load_cmdp
    from cpdpo_jax.envs.files import save_cmdp as save_cmdp
    from cpdpo_jax.envs.gym import to_gymnasium as to_gymnasium
    from cpdpo_jax.exact.optimum import InfeasibleError as InfeasibleError
    from cpdpo_jax.exact.optimum import Solution as Solution
    from cpdpo_jax.exact.optimum import solve as solve
    from cpdpo_jax.results.result import NonFiniteError as NonFiniteError
    from cpdpo_jax.results.result import Result as Result
    from cpdpo_jax.simulation.simulate import simulate as simulate
    from cpdpo_jax.simulation.train import make_train as make_train
    from cpdpo_jax.sweeps.run import load_run as load_run
    from cpdpo_jax.sweeps.run import run as run

__version__ = "0.4.0"

_WHERE = {
    "CMDP": "cpdpo_jax.common.types",
    "InfeasibleError": "cpdpo_jax.exact.optimum",
    "NonFiniteError": "cpdpo_jax.results.result",
    "Result": "cpdpo_jax.results.result",
    "Solution": "cpdpo_jax.exact.optimum",
    "Trajectory": "cpdpo_jax.common.types",
    "Units": "cpdpo_jax.common.types",
    "from_arrays": "cpdpo_jax.envs.arrays",
    "from_episodic": "cpdpo_jax.envs.episodic",
    "load_cmdp": "cpdpo_jax.envs.files",
    "load_run": "cpdpo_jax.sweeps.run",
    "make_cmdp": "cpdpo_jax.envs.build",
    "make_train": "cpdpo_jax.simulation.train",
    "run": "cpdpo_jax.sweeps.run",
    "save_cmdp": "cpdpo_jax.envs.files",
    "simulate": "cpdpo_jax.simulation.simulate",
    "solve": "cpdpo_jax.exact.optimum",
    "stack": "cpdpo_jax.envs.build",
    "to_gymnasium": "cpdpo_jax.envs.gym",
    "unstack": "cpdpo_jax.envs.build",
}
_MODULES = ("envs", "kernels", "learners")

__all__ = [*sorted(_WHERE), *_MODULES]


def __getattr__(name: str):
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"cpdpo_jax.{name}")
    raise AttributeError(f"module 'cpdpo_jax' has no attribute {name!r}; it has {', '.join(__all__)}")


def _describe(cmdp: CMDP) -> str:
    from cpdpo_jax.envs.describe import describe

    return describe(cmdp)


describing.register(_describe)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
