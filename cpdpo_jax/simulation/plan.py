"""What is to be run, checked and on the host: the plan of each learner, which its blocks share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np

from cpdpo_jax.common.types import CMDP
from cpdpo_jax.common.words import did_you_mean
from cpdpo_jax.envs import registry
from cpdpo_jax.envs.build import stack, unstack
from cpdpo_jax.exact import optimum
from cpdpo_jax.learners import base, settings
from cpdpo_jax.learners.base import Learner, Problem
from cpdpo_jax.learners.fixed import UNIFORM
from cpdpo_jax.simulation import inputs, knowledge, monitor
from cpdpo_jax.simulation.options import Options, whole

FIRST_DOUBLING = 1024  # episodes of the first phase when T is unknown


class Phase(NamedTuple):
    """A stretch of a run with one start of the learner: known T has one, doubling and exploring first have several."""

    learner: Learner
    first: int  # episodes first..last-1
    last: int
    horizon: int  # the T of the learner's constants
    explores: bool = False  # rho is estimated from this phase


@dataclass(frozen=True)
class LearnerPlan:
    """One learner's part of a run: all that its blocks share, on the host in float64."""

    phases: list[Phase]
    cmdp: CMDP  # a batch of instances
    problem: Problem  # [instances]
    settings: list[settings.Setting]
    optimum: np.ndarray  # [instances]
    truth: monitor.Truth | None  # [instances]; given: watch the analysis
    key: int
    dtype: Any
    checkpoints: np.ndarray  # episodes, increasing; the last is the end
    known_policy: np.ndarray | None = None  # [L,S,A,instances] for a learner that `plays` one
    first_instance: int = 0  # position of the first instance in the batch it was taken from: its luck depends on it

    @property
    def learner(self) -> Learner:
        """The learner, which is that of the last phase: rho may be estimated before it starts."""
        return self.phases[-1].learner

    @property
    def on_host(self) -> bool:
        """Nothing of it is compiled."""
        return not any(phase.learner.compiled for phase in self.phases)

    @cached_property
    def calls(self) -> list[int]:
        """Where a call to the device must end: the checkpoints and the ends of the phases."""
        return sorted({*map(int, self.checkpoints), *(phase.last for phase in self.phases)})


class SimulationPlan(NamedTuple):
    """A run, checked and ready to be cut into blocks."""

    learners: list[LearnerPlan]
    seeds: np.ndarray
    solution: optimum.Solution
    asked: dict[str, Any]  # what goes into the result's attributes


def prepare(
    learner: str | Learner | Sequence[str | Learner],
    cmdp: str | CMDP | Sequence[CMDP],
    *,
    episodes: int,
    seeds: int | Sequence[int],
    hparams: Any = "tuned",
    options: Options,
    solution: optimum.Solution | None = None,
) -> SimulationPlan:
    """Check everything `simulate` is given, before any work is done; `solution` spares solving the instances again."""
    several = [learner] if isinstance(learner, str | Learner) else learner
    if not isinstance(several, list | tuple) or not all(isinstance(one, str | Learner) for one in several):
        raise ValueError(
            f"learner is a {type(learner).__name__}; give a learner's name, a Learner, or a list of those."
        )
    for name in several:
        if isinstance(name, str) and name not in base.names() and name in registry.names():
            raise ValueError(f"{name!r} is an environment; give a learner in its place, such as 'cpdpo'.")
    learners = [base.get(name) for name in several]
    cmdp = inputs.batch(cmdp)
    episodes = whole("episodes", episodes)
    seed_numbers = inputs.seeds(seeds)
    points = inputs.checkpoints(options.checkpoints, episodes)
    names = [chosen.name for chosen in learners]
    if not names or len(set(names)) < len(names):
        what = "no learner is named" if not names else "the same learner is named twice"
        raise ValueError(f"{what}; name each once and give its settings in hparams.")
    by_learner = _settings_by_learner(hparams, names)
    solution = optimum.solve(cmdp) if solution is None else solution
    margin, explored = inputs.slater_margin(options.rho, cmdp, solution, learners)
    if explored >= episodes:
        raise ValueError(f"rho = {options.rho!r} explores for all {episodes} episodes; explore for fewer, or run more.")
    problem = base.make_problem(cmdp, episodes=episodes, delta=options.delta, slater_margin=margin)
    plans = [
        LearnerPlan(
            phases=phases(chosen, episodes, explored, options.horizon),
            cmdp=cmdp,
            problem=knowledge.problem_for(chosen, problem, cmdp, solution, options.safety),
            settings=by_learner[chosen.name],
            optimum=np.asarray(solution.value),
            truth=monitor.truth(chosen, cmdp, solution) if options.monitor else None,
            key=options.key,
            dtype=np.dtype(options.dtype),
            checkpoints=points,
            known_policy=getattr(solution, chosen.plays) if chosen.plays else None,
        )
        for chosen in learners
    ]
    for plan in plans:
        for setting in plan.settings:
            settings.resolve(setting, plan.learner, plan.problem)  # errors before any work is done
    asked = {"episodes": episodes, "delta": options.delta, "rho": str(options.rho), "horizon": options.horizon}
    return SimulationPlan(plans, seed_numbers, solution, asked)


def _settings_by_learner(hparams: Any, names: list[str]) -> dict[str, list[settings.Setting]]:
    """The settings of each learner: the same for all, or a table by learner's name (those not in it are tuned)."""
    known = {*base.names(), *names}
    by_name = isinstance(hparams, dict) and any(key in known or isinstance(of, dict) for key, of in hparams.items())
    for name in hparams if by_name else ():
        if name not in names:
            hint = did_you_mean(name, names) or f"those are {', '.join(names)}."
            raise ValueError(f"hparams are given for {name!r}, which is not among the learners; {hint}")
    return {name: settings.parse(hparams.get(name, "tuned") if by_name else hparams) for name in names}


def phases(learner: Learner, episodes: int, explored: int, horizon: str) -> list[Phase]:
    """The stretches of a run: exploring first if rho is to be estimated, then one, or doubling ones if T is unknown."""
    stretches = [Phase(UNIFORM, 0, explored, explored, explores=True)] if explored else []
    if horizon == "known":
        return [*stretches, Phase(learner, explored, episodes, episodes - explored)]
    first, length = explored, FIRST_DOUBLING
    while first < episodes:
        stretches.append(Phase(learner, first, min(first + length, episodes), length))
        first, length = first + length, 2 * length
    return stretches


def select_instance(plan: LearnerPlan, instance: int, setting: int) -> LearnerPlan:
    """One instance and one setting of a plan; the instance keeps its luck."""

    def cut(array: Any) -> np.ndarray:
        return np.asarray(array)[..., [instance]]

    return replace(
        plan,
        cmdp=stack([unstack(plan.cmdp)[instance]]),
        problem=jax.tree.map(cut, plan.problem),
        settings=[plan.settings[setting]],
        optimum=cut(plan.optimum),
        truth=None if plan.truth is None else jax.tree.map(cut, plan.truth),
        known_policy=None if plan.known_policy is None else cut(plan.known_policy),
        first_instance=plan.first_instance + instance,
    )
