"""The hyperparameters that were used, as they go into a result: of every phase, and of a seed where rho was its own.

A learner's constants depend on T and on rho. Under `horizon="doubling"` each phase has a T, under `rho="estimate:N"`
each seed has a rho and the T of the episodes that are left; what is recorded is what the phase was started with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from cpdpo_jax.learners import settings
from cpdpo_jax.learners.base import Problem
from cpdpo_jax.simulation.plan import LearnerPlan, Phase

if TYPE_CHECKING:
    import xarray as xr


def learning_phases(plan: LearnerPlan) -> list[Phase]:
    """The phases in which the learner itself plays: not the one that explores to estimate rho."""
    return [phase for phase in plan.phases if not phase.explores]


def estimates_margin(plans: list[LearnerPlan]) -> bool:
    """Whether rho is estimated by each seed for itself."""
    return any(phase.explores for plan in plans for phase in plan.phases)


def used_in(
    plan: LearnerPlan, setting: settings.Setting, phase: Phase, believed: np.ndarray
) -> tuple[Problem, Any]:  # fmt: skip
    """What a phase was started with: `believed` [instances, seeds] margins -> (problem, hyper), [instances * seeds].

    Runs that did not get so far (NaN) have NaN.
    """
    seeds, margin = believed.shape[1], believed.reshape(-1)
    begun = np.isfinite(margin)
    problem: Problem = jax.tree.map(lambda array: np.repeat(np.asarray(array), seeds, axis=-1), plan.problem)
    problem = problem._replace(
        slater_margin=np.where(begun, margin, 1.0), episodes=np.full(len(margin), float(phase.horizon))
    )
    hyper = settings.resolve(setting, phase.learner, problem)
    return problem, jax.tree.map(lambda values: np.where(begun, values, np.nan), hyper)


def with_hyperparameters(
    data: xr.Dataset, plans: list[LearnerPlan], labels: list[str], believed: np.ndarray
) -> xr.Dataset:
    """Add every hyperparameter of every learner; NaN where a learner has none such. `believed` [P,I,K,seeds].

    Dimensions learner, instance, setting; seed where rho is estimated; phase where there are several, with their first
    episodes and the T of their constants beside them.
    """
    phases, per_seed = learning_phases(plans[0]), estimates_margin(plans)
    shape = (*believed.shape, len(phases))
    if not per_seed:  # the same for all seeds, whether they were run or not
        margins = np.stack([np.asarray(plan.problem.slater_margin) for plan in plans])[:, :, None, None]
        believed = np.broadcast_to(margins, (*shape[:3], 1))
        shape = (*shape[:3], 1, len(phases))
    values: dict[str, np.ndarray] = {}
    for p, plan in enumerate(plans):
        for setting in plan.settings:
            at = labels.index(setting.label)
            for k, phase in enumerate(learning_phases(plan)):
                _, hyper = used_in(plan, setting, phase, believed[p, :, at])
                for name, value in hyper._asdict().items():
                    table = values.setdefault(name, np.full(shape, np.nan))
                    table[p, :, at, :, k] = np.reshape(value, (table.shape[1], -1))
    dims = ["learner", "instance", "setting", *(["seed"] if per_seed else []), *(["phase"] if len(phases) > 1 else [])]
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
