"""The events and inequalities of the proof of CPD-OPPO with a learnt cap, checked in every episode of a monitored run.

With x_t, e_t, v_t as in `cpd_oppo_analysis` (kappa = the cap of the episode's phase), B_t and Z(n) as in
`cpd_oppo_free`, and Lambda the least ||lambda||_inf of an optimal dual solution:
    reward, cost, transition, improvement, error, exchange    as for `cpd_oppo`
    width       e_t <= (1 + kappa m) B_t                                                                  (step 2)
    regret      [OPT - V(r)]^+ <= x_t + e_t + (Lambda - kappa) v_t                                        (step 5)
    violation   (kappa - Lambda) v_t <= x_t + e_t                                                         (step 3)
    cap         a cap of at least 2 Lambda is not doubled                                                 (step 3)
    phase       x_t + e_t, summed over the episodes of the phase, is at most Z(n)                         (steps 1, 2)
Summed over the episodes: x_t + e_t, and the increments of Z(n), a bound of the former; `bound_scale` multiplies Z(n).
The last sum restarts with each phase.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.learners.base import Analysis, Problem, Watched
from cpdpo_jax.learners.cpd_oppo_analysis import EVENTS as SHARED
from cpdpo_jax.learners.cpd_oppo_analysis import Evaluate, terms

EVENTS = (*SHARED[:6], "width", "regret", "violation", "cap", "phase")
SUMS = ("x + e", "Z", "x + e of the phase")


def analysis(evaluate: Evaluate, value_width: Callable[..., jax.Array]) -> Analysis:
    """The analysis; `evaluate` and `value_width` (of B_t) are the learner's own functions."""
    return Analysis(EVENTS, SUMS, partial(observe, evaluate, value_width), bounds, order_terms)


def observe(evaluate: Evaluate, value_width: Callable[..., jax.Array], seen: Watched) -> tuple[jax.Array, jax.Array]:
    """The slack of every event, [11,B], and the terms of the sums, [3,B]."""
    cap, norm = seen.before.cap, seen.multiplier_norm
    parts = terms(evaluate, seen, cap)
    both, m = parts.x + parts.e, seen.problem.threshold.shape[0]
    width = (1 + cap * m) * value_width(seen.after.estimates, parts.evaluation, seen.policy)
    begun, length = seen.before.phase.length > 0, seen.before.phase.length + 1
    earlier = jnp.where(begun, seen.before.allowance, 0)  # Z(n - 1)
    before = seen.sums[2]  # x + e of the phase that the last episode belonged to
    slack = [
        *parts.slack,
        width - parts.e + parts.size,
        both + (norm - cap) * parts.v - jnp.maximum(seen.gaps[0], 0) + parts.size,
        both - (cap - norm) * parts.v + parts.size,
        jnp.where(seen.after.cap > cap, 2 * norm - cap, jnp.inf),
        seen.after.allowance - both - jnp.where(begun, before, 0) + length.astype(both.dtype) * parts.size,
    ]
    return jnp.stack(slack), jnp.stack([both, seen.after.allowance - earlier, both - jnp.where(begun, 0, before)])


def bounds(problem: Problem, hyper: Any, n_constraints: int, episodes: float) -> np.ndarray:
    """NaN: no bound is independent of the run, [3,B]."""
    return np.full((len(SUMS), problem.delta.size), np.nan)


def order_terms(problem: Problem, n_constraints: int, multiplier_norm: Any) -> tuple[Any, Any]:
    """(1 + m + (m + 1) Lambda) L |X| sqrt(|A| T) (strong regret), (1 + m) L |X| sqrt(|A| T) (violation); kappa_0 = 1.

    Logarithms and the number of phases are dropped.
    """
    n_layers, m = problem.action_mask.shape[0], n_constraints
    unit = n_layers * problem.n_states * np.sqrt(problem.n_actions * problem.episodes)
    return (1 + m + (m + 1) * np.asarray(multiplier_norm)) * unit, (1 + m) * unit
