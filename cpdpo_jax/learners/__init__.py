"""Learners: `init`, `policy`, `update`, each handed what the paper lets it know and nothing of the true model.

One module per learner; `names()` lists them, `get(name)` finds one, `register` adds your own, `check` tries it out; an
installed package adds its own by the entry point `cpdpo_jax.learners`.
"""

from cpdpo_jax.learners import (
    cpd_oppo,
    cpdpo,
    dope,
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
    triple_q,
    uob_reps,
    uopt_rpgpd,
)
from cpdpo_jax.learners.base import (
    Analysis,
    Info,
    Learner,
    NoHyperparameters,
    Problem,
    Watched,
    get,
    names,
    register,
    registered,
    unregister,
)
from cpdpo_jax.learners.checking import check

OURS = registered()  # those of this package

__all__ = [
    "OURS",
    "Analysis",
    "Info",
    "Learner",
    "NoHyperparameters",
    "Problem",
    "Watched",
    "check",
    "cpd_oppo",
    "cpdpo",
    "dope",
    "fixed",
    "get",
    "ghosh",
    "names",
    "opse",
    "optcmdp",
    "optcmdp_bonus",
    "optdual",
    "optpess_lp",
    "optpess_primaldual",
    "optprimaldual",
    "podb",
    "register",
    "regularized_primal_dual",
    "triple_q",
    "unregister",
    "uob_reps",
    "uopt_rpgpd",
]
