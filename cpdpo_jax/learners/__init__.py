"""Learners: `init`, `policy`, `update`, each handed what the paper lets it know and nothing of the true model."""

from cpdpo_jax.learners.base import Info, Learner, Problem, get, names, register
from cpdpo_jax.learners.cpdpo import cpdpo
from cpdpo_jax.learners.fixed import uniform
from cpdpo_jax.learners.podb import podb

__all__ = ["Info", "Learner", "Problem", "cpdpo", "get", "names", "podb", "register", "uniform"]
