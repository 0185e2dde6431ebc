"""cpdpo_jax: online learning in constrained MDPs, simulated in batches.

    import cpdpo_jax as cp

Names load on first use, so that `import cpdpo_jax` and `cpdpo --help` do not wait for jax.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from cpdpo_jax.common import xla_options

xla_options.set_options()

if TYPE_CHECKING:
    from cpdpo_jax import envs as envs
    from cpdpo_jax import kernels as kernels
    from cpdpo_jax import learners as learners
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
    from cpdpo_jax.envs.gym_tables import from_gymnasium as from_gymnasium
    from cpdpo_jax.exact.optimum import InfeasibleError as InfeasibleError
    from cpdpo_jax.exact.optimum import Solution as Solution
    from cpdpo_jax.exact.optimum import solve as solve
    from cpdpo_jax.results.adversarial import AdversarialRun as AdversarialRun
    from cpdpo_jax.results.adversarial import plot_losses as plot_losses
    from cpdpo_jax.results.concatenation import concat as concat
    from cpdpo_jax.results.growth import plot_growth as plot_growth
    from cpdpo_jax.results.result import NonFiniteError as NonFiniteError
    from cpdpo_jax.results.result import Result as Result
    from cpdpo_jax.simulation.adversarial import play_losses as play_losses
    from cpdpo_jax.simulation.simulate import simulate as simulate
    from cpdpo_jax.simulation.train import make_train as make_train
    from cpdpo_jax.sweeps.run import load_run as load_run
    from cpdpo_jax.sweeps.run import run as run

__version__ = "0.5.0"

_WHERE = {
    "AdversarialRun": "cpdpo_jax.results.adversarial",
    "CMDP": "cpdpo_jax.common.types",
    "InfeasibleError": "cpdpo_jax.exact.optimum",
    "NonFiniteError": "cpdpo_jax.results.result",
    "Result": "cpdpo_jax.results.result",
    "Solution": "cpdpo_jax.exact.optimum",
    "Trajectory": "cpdpo_jax.common.types",
    "Units": "cpdpo_jax.common.types",
    "concat": "cpdpo_jax.results.concatenation",
    "from_arrays": "cpdpo_jax.envs.arrays",
    "from_episodic": "cpdpo_jax.envs.episodic",
    "from_gymnasium": "cpdpo_jax.envs.gym_tables",
    "load_cmdp": "cpdpo_jax.envs.files",
    "load_run": "cpdpo_jax.sweeps.run",
    "make_cmdp": "cpdpo_jax.envs.build",
    "make_train": "cpdpo_jax.simulation.train",
    "play_losses": "cpdpo_jax.simulation.adversarial",
    "plot_growth": "cpdpo_jax.results.growth",
    "plot_losses": "cpdpo_jax.results.adversarial",
    "run": "cpdpo_jax.sweeps.run",
    "save_cmdp": "cpdpo_jax.envs.files",
    "simulate": "cpdpo_jax.simulation.simulate",
    "solve": "cpdpo_jax.exact.optimum",
    "stack": "cpdpo_jax.envs.build",
    "to_gymnasium": "cpdpo_jax.envs.gym",
    "unstack": "cpdpo_jax.envs.build",
}

__all__ = [
    "CMDP",
    "AdversarialRun",
    "InfeasibleError",
    "NonFiniteError",
    "Result",
    "Solution",
    "Trajectory",
    "Units",
    "concat",
    "envs",
    "from_arrays",
    "from_episodic",
    "from_gymnasium",
    "kernels",
    "learners",
    "load_cmdp",
    "load_run",
    "make_cmdp",
    "make_train",
    "play_losses",
    "plot_growth",
    "plot_losses",
    "run",
    "save_cmdp",
    "simulate",
    "solve",
    "stack",
    "to_gymnasium",
    "unstack",
]


if not TYPE_CHECKING:  # checkers report unknown names

    def __getattr__(name: str) -> Any:
        if name in _WHERE:
            return getattr(importlib.import_module(_WHERE[name]), name)
        if name in __all__:
            return importlib.import_module(f"cpdpo_jax.{name}")
        raise AttributeError(f"module 'cpdpo_jax' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
