"""Learners: `init`, `policy`, `update`, each handed what the paper lets it know and nothing of the true model.

One module per learner; `names()` lists them, `get(name)` finds one, `register` adds your own.
"""

from cpdpo_jax.learners import (
    cpd_oppo,
    cpdpo,
    fixed,
    ghosh,
    optcmdp,
    optcmdp_bonus,
    optdual,
    optpess_primaldual,
    optprimaldual,
    podb,
    regularized_primal_dual,
    triple_q,
    uopt_rpgpd,
)
from cpdpo_jax.learners.base import Analysis, Info, Learner, NoHyperparameters, Problem, Watched, get, names, register

__all__ = [
    "Analysis",
    "Info",
    "Learner",
    "NoHyperparameters",
    "Problem",
    "Watched",
    "cpd_oppo",
    "cpdpo",
    "fixed",
    "get",
    "ghosh",
    "names",
    "optcmdp",
    "optcmdp_bonus",
    "optdual",
    "optpess_primaldual",
    "optprimaldual",
    "podb",
    "register",
    "regularized_primal_dual",
    "triple_q",
    "uopt_rpgpd",
]
