"""The hyperparameters used in a run, as recorded in its result: per phase, and per seed if rho is estimated.

A learner's constants depend on T and on rho. Under `horizon="doubling"` each phase has a T, under `rho="estimate:N"`
each seed has a rho and the T of the remaining episodes; the values at the start of each phase are recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from cpdpo_jax.learners.base import Problem
from cpdpo_jax.learners.hparams import resolve
from cpdpo_jax.simulation.plan import LearnerPlan, Phase

if TYPE_CHECKING:
    import xarray as xr


def learning_phases(plan: LearnerPlan) -> list[Phase]:
    """The phases in which the learner itself plays, without the exploration phase that estimates rho."""
    return [phase for phase in plan.phases if not phase.explores]


def estimates_margin(plans: list[LearnerPlan]) -> bool:
    """Whether each seed estimates rho."""
    return any(phase.explores for plan in plans for phase in plan.phases)


def used_in(
    plan: LearnerPlan, hparams: int, phase: Phase, believed: np.ndarray
) -> tuple[Problem, Any]:  # fmt: skip
    """Values at the start of a phase: `believed` [instances, seeds] margins -> (problem, hyper), [instances * seeds].

    `hparams` is a position. Phases that a run did not reach are NaN.
    """
    seeds, margin = believed.shape[1], believed.reshape(-1)
    begun = np.isfinite(margin)
    problem: Problem = jax.tree.map(lambda array: np.repeat(np.asarray(array), seeds, axis=-1), plan.problems[hparams])
    problem = problem._replace(
        slater_margin=np.where(begun, margin, 1.0), episodes=np.full(len(margin), float(phase.horizon))
    )
    hyper = resolve(plan.hparams[hparams], phase.learner, problem)
    return problem, jax.tree.map(lambda values: np.where(begun, values, np.nan), hyper)


def with_hyperparameters(
    data: xr.Dataset, plans: list[LearnerPlan], labels: list[str], believed: np.ndarray
) -> xr.Dataset:
    """Add every hyperparameter of every learner; NaN where a learner lacks it. `believed` [P,I,K,seeds].

    Dimensions learner, instance, hparams; seed if rho is estimated; phase if there are several, with their first
    episodes and the T of their constants as coordinates.
    """
    phases, per_seed = learning_phases(plans[0]), estimates_margin(plans)
    shape = (*believed.shape, len(phases))
    if not per_seed:  # the same for all seeds, whether they were run or not
        shape = (*shape[:3], 1, len(phases))
    values: dict[str, np.ndarray] = {}
    for p, plan in enumerate(plans):
        for h, choice in enumerate(plan.hparams):
            at = labels.index(choice.label)
            margin = believed[p, :, at] if per_seed else np.asarray(plan.problems[h].slater_margin)[:, None]
            for k, phase in enumerate(learning_phases(plan)):
                _, hyper = used_in(plan, h, phase, margin)
                for name, value in hyper._asdict().items():
                    table = values.setdefault(name, np.full(shape, np.nan))
                    table[p, :, at, :, k] = np.reshape(value, (table.shape[1], -1))
    dims = ["learner", "instance", "hparams", *(["seed"] if per_seed else []), *(["phase"] if len(phases) > 1 else [])]
    for name, table in values.items():
        cut = table if per_seed else table[:, :, :, 0]
        data[f"hyper_{name}"] = (dims, cut if len(phases) > 1 else cut[..., 0])
    if len(phases) == 1:
        return data
    return data.assign_coords(
        phase=np.arange(len(phases)),
        phase_first=("phase", [phase.first + 1 for phase in phases], {"units": "episode"}),
        phase_horizon=("phase", [phase.horizon for phase in phases], {"units": "the T of the phase's constants"}),
    )
