"""Learners: `init`, `policy`, `update`. Each receives what the paper lets it know and never the true model.

Each learner has its own module. `names()` lists them, `get(name)` returns one, `register` adds your own and `check`
tests it. An installed package adds its learners by the entry point `cpdpo_jax.learners`.
"""

import warnings
from typing import TYPE_CHECKING, Any

from cpdpo_jax.common import former_names

# Each module registers its learner.
from cpdpo_jax.learners import (  # noqa: F401
    base,
    bv_ops,
    cpd_oppo,
    cpd_oppo_free,
    cpdpo,
    dope,
    estimates,
    fixed,
    ghosh,
    opse,
    optcmdp,
    optcmdp_bonus,
    optdual,
    optpess_lp,
    optpess_primaldual,
    optprimaldual,
    podb,
    regularized_primal_dual,
    s_ops,
    triple_q,
    uob_reps,
    uopt_rpgpd,
)
from cpdpo_jax.learners.base import (
    PRESETS,
    SAFE_POLICY,
    Analysis,
    Info,
    Learner,
    NoHyperparameters,
    Problem,
    SafePolicy,
    Watched,
    get,
    names,
    recentred,
    register,
    registered,
    softmax_policy,
    uniform_policy,
    unregister,
)
from cpdpo_jax.learners.checking import check
from cpdpo_jax.learners.estimates import Estimates

BUILT_IN = registered()  # the names of this package's learners

__all__ = [
    "BUILT_IN",
    "PRESETS",
    "SAFE_POLICY",
    "Analysis",
    "Estimates",
    "Info",
    "Learner",
    "NoHyperparameters",
    "Problem",
    "SafePolicy",
    "Watched",
    "check",
    "get",
    "names",
    "recentred",
    "register",
    "softmax_policy",
    "uniform_policy",
    "unregister",
]


if not TYPE_CHECKING:  # checkers report unknown names

    def __getattr__(name: str) -> Any:
        if name in former_names.LEARNERS:
            new = former_names.LEARNERS[name]
            warnings.warn(f"learners.{name} is now learners.{new}.", DeprecationWarning, stacklevel=2)
            return globals()[new]
        raise AttributeError(f"module 'cpdpo_jax.learners' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return __all__
