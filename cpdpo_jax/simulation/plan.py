"""Validated plans of a run, on the host: one plan per learner, shared by its blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np

from cpdpo_jax.common.errors import errors_of_learner
from cpdpo_jax.common.text import did_you_mean
from cpdpo_jax.common.types import CMDP
from cpdpo_jax.envs import registry
from cpdpo_jax.envs.build import stack, unstack
from cpdpo_jax.exact import optimum
from cpdpo_jax.learners import base
from cpdpo_jax.learners.base import Learner, Problem
from cpdpo_jax.learners.fixed import UNIFORM
from cpdpo_jax.learners.hparams import Hparams, parse, resolve, with_options
from cpdpo_jax.simulation import inputs, knowledge, monitor
from cpdpo_jax.simulation.options import Options, integer

FIRST_DOUBLING = 1024  # episodes of the first phase if T is unknown


class Phase(NamedTuple):
    """A part of a run with one start of the learner: one if T is known; several with doubling or exploration."""

    learner: Learner
    first: int  # episodes first..last-1
    last: int
    horizon: int  # T in the learner's constants
    explores: bool = False  # rho is estimated from this phase


@dataclass(frozen=True)
class LearnerPlan:
    """The part of a run that belongs to one learner and is shared by its blocks, on the host in float64."""

    phases: list[Phase]
    cmdp: CMDP  # a batch of instances
    hparams: list[Hparams]
    problems: list[Problem]  # one per choice of hparams, [instances]
    optimum: np.ndarray  # [instances]
    truth: monitor.Truth | None  # [instances]; if given, the analysis is monitored
    key: int
    dtype: Any
    checkpoints: np.ndarray  # episodes, increasing; the last is the end
    known_policy: np.ndarray | None = None  # [L,S,A,instances] for a learner with `plays`
    first_instance: int = 0  # position of the first instance in the original batch, on which its draws depend

    @property
    def environment(self) -> str:
        """The environment of the loop: the noise of the CMDP's payoffs."""
        return self.cmdp.noise

    @property
    def learner(self) -> Learner:
        """The learner of the last phase; an exploration phase may precede it."""
        return self.phases[-1].learner

    @property
    def on_host(self) -> bool:
        """Whether all phases run on the host."""
        return not any(phase.learner.compiled for phase in self.phases)

    def believed(self, hparams: np.ndarray, instance: np.ndarray) -> np.ndarray:
        """The Slater margin given to the learner in each lane; a placeholder if it is estimated."""
        margins = np.stack([problem.slater_margin for problem in self.problems])
        return margins[hparams, instance]

    @cached_property
    def calls(self) -> list[int]:
        """The episodes at which device calls must end: checkpoints and ends of phases."""
        return sorted({*map(int, self.checkpoints), *(phase.last for phase in self.phases)})


class SimulationPlan(NamedTuple):
    """A validated run, ready to be divided into blocks."""

    learners: list[LearnerPlan]
    seeds: np.ndarray
    solution: optimum.Solution
    attributes: dict[str, Any]  # of the result


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
    """Validate all arguments of `simulate` before any work is done; `solution` avoids solving the instances again."""
    several = [learner] if isinstance(learner, str | Learner) else learner
    if not isinstance(several, list | tuple) or not all(isinstance(item, str | Learner) for item in several):
        raise ValueError(
            f"learner is a {type(learner).__name__}; give a learner's name, a Learner, or a list of these."
        )
    for name in several:
        if isinstance(name, str) and name not in base.names() and name in registry.names():
            raise ValueError(f"{name!r} is an environment; give a learner instead, such as 'cpdpo'.")
    learners = [base.get(name) for name in several]
    cmdp = inputs.batch(cmdp)
    episodes = integer("episodes", episodes)
    seed_numbers = inputs.seeds(seeds)
    points = inputs.checkpoints(options.checkpoints, episodes)
    names = [chosen.name for chosen in learners]
    if not names or len(set(names)) < len(names):
        fault = "no learner is given" if not names else "a learner is given twice"
        raise ValueError(f"learner = {names}: {fault}; give each once, and its choices in hparams.")
    by_learner = _hparams_by_learner(hparams, names)
    solution = optimum.solve(cmdp) if solution is None else solution
    explored, cases = 0, []
    for values, case in options.combinations():
        margin, explored = inputs.slater_margin(case.rho, cmdp, solution, learners)
        cases.append((values, base.make_problem(cmdp, episodes=episodes, delta=case.delta, slater_margin=margin), case))
    if explored >= episodes:
        raise ValueError(f"rho = {options.rho!r} explores for all {episodes} episodes; explore for fewer, or run more.")
    problems = {
        chosen.name: [knowledge.problem_for(chosen, problem, cmdp, solution, case.safety) for _, problem, case in cases]
        for chosen in learners
    }
    plans = [
        LearnerPlan(
            phases=phases(chosen, episodes, explored, options.horizon),
            cmdp=cmdp,
            hparams=[with_options(choice, values) for choice in by_learner[chosen.name] for values, *_ in cases],
            problems=problems[chosen.name] * len(by_learner[chosen.name]),
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
        for choice, problem in zip(plan.hparams, plan.problems, strict=True):
            with errors_of_learner(plan.learner.name):
                resolve(choice, plan.learner, problem)  # raises errors before any work is done
    attributes = {"episodes": episodes, "delta": options.delta, "rho": str(options.rho), "safety": options.safety}
    attributes = {name: value for name, value in attributes.items() if name not in options.axes} | {
        "horizon": options.horizon
    }
    return SimulationPlan(plans, seed_numbers, solution, attributes)


def _hparams_by_learner(hparams: Any, names: list[str]) -> dict[str, list[Hparams]]:
    """The hyperparameters of each learner: the same for all, or a table by name (the others are tuned)."""
    known = {*base.names(), *names}
    by_name = isinstance(hparams, Mapping) and any(
        key in known or isinstance(value, Mapping) for key, value in hparams.items()
    )
    for name in hparams if by_name else ():
        if name not in names:
            hint = did_you_mean(name, names) or f"the learners are {', '.join(names)}."
            raise ValueError(f"hparams are given for {name!r}, which is not a learner of this run; {hint}")
    return {name: parse(hparams.get(name, "tuned") if by_name else hparams) for name in names}


def phases(learner: Learner, episodes: int, explored: int, horizon: str) -> list[Phase]:
    """The phases of a run: exploration if rho is estimated, then one phase, or doubling phases if T is unknown."""
    result = [Phase(UNIFORM, 0, explored, explored, explores=True)] if explored else []
    if horizon == "known":
        return [*result, Phase(learner, explored, episodes, episodes - explored)]
    first, length = explored, FIRST_DOUBLING
    while first < episodes:
        result.append(Phase(learner, first, min(first + length, episodes), length))
        first, length = first + length, 2 * length
    return result


def select_instance(plan: LearnerPlan, instance: int, hparams: int) -> LearnerPlan:
    """One instance and one choice of hparams of a plan; the instance keeps its random draws."""

    def select(array: Any) -> np.ndarray:
        return np.asarray(array)[..., [instance]]

    return replace(
        plan,
        cmdp=stack([unstack(plan.cmdp)[instance]]),
        hparams=[plan.hparams[hparams]],
        problems=[jax.tree.map(select, plan.problems[hparams])],
        optimum=select(plan.optimum),
        truth=None if plan.truth is None else jax.tree.map(select, plan.truth),
        known_policy=None if plan.known_policy is None else select(plan.known_policy),
        first_instance=plan.first_instance + instance,
    )
