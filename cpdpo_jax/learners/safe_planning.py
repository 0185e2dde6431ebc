"""Shared by the learners that plan by linear program and fall back on a safe policy: when to plan, and the counts.

Host learners: NumPy in float64, one lane at a time. The safe policy pi_b and its costs C_b are declared extra knowledge
(`Problem.safe`); gap = min_i alpha_i - C_b,i. pi_1 = pi_b; pi_b is played whenever a learner does not trust its plan
or the program has no solution, and in states that a plan does not reach.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cpdpo_jax.common.types import Trajectory
from cpdpo_jax.learners import planning, replanning
from cpdpo_jax.learners.base import SAFE_POLICY, Info, Learner, Problem, SafePolicy
from cpdpo_jax.learners.replanning import Counts


class State(NamedTuple):
    """State before episode t."""

    counts: Counts
    policy: np.ndarray  # [L,S,A] pi_t
    multipliers: np.ndarray  # [M] the prices of the constraints in the LP that gave pi_t; 0 if pi_t is pi_b
    basis: planning.Basis  # of the last LP; the next LP starts from it
    planned_visits: np.ndarray  # [L,S,A] int32, the visits that pi_t was planned with
    solved: np.ndarray  # [] int32, LPs so far
    fallback: np.ndarray  # [] int32, 1 if pi_t is pi_b
    fallbacks: np.ndarray  # [] int32, episodes before t in which pi_b was played


Propose = Callable[[Problem, Any, Counts, int], planning.Inputs | None]  # for episode t; None: pi_b


def known(problem: Problem) -> SafePolicy:
    """The safe policy and its costs; ValueError if they were not provided."""
    if problem.safe is None:
        raise ValueError(
            "this learner needs a safe policy, and problem.safe is None; declare extra_knowledge = SAFE_POLICY, and "
            "`simulate` provides it."
        )
    return problem.safe


def gap(problem: Problem) -> Any:
    """min_i alpha_i - C_b,i, [B]."""
    return np.min(np.asarray(problem.threshold) - np.asarray(known(problem).cost), axis=0)


def value(transition: np.ndarray, policy: np.ndarray, payoffs: np.ndarray) -> np.ndarray:
    """V(x_0) by the backward recursion: [L-1,S,A,S], [L,S,A], [K,L,S,A] -> [K]; nothing is truncated."""
    ahead = (policy[-1] * payoffs[:, -1]).sum(axis=2)
    for k in reversed(range(len(transition))):
        ahead = (policy[k] * (payoffs[:, k] + np.einsum("xay,cy->cxa", transition[k], ahead))).sum(axis=2)
    return ahead[:, 0]


def init(problem: Problem, with_set: bool) -> State:
    """State before the first episode; pi_1 = pi_b."""
    start = replanning.init(problem, with_set)
    return State(
        counts=start.counts,
        policy=np.array(known(problem).policy),
        multipliers=start.multipliers,
        basis=start.basis,
        planned_visits=start.planned_visits,
        solved=start.solved,
        fallback=np.ones((), np.int32),
        fallbacks=np.zeros((), np.int32),
    )


def update(
    problem: Problem, hyper: Any, state: State, trajectory: Trajectory, propose: Propose, with_set: bool
) -> tuple[State, Info]:
    """Count episode t, then plan pi_{t+1}; the Info is that of pi_t, the policy played."""
    fallbacks = state.fallbacks + state.fallback
    info = Info(state.multipliers, state.solved, fallbacks)
    counts = replanning.count(state.counts, trajectory)
    state = state._replace(counts=counts, fallbacks=fallbacks)
    if hyper.solve_when_doubled and not (counts.visits >= np.maximum(1, 2 * state.planned_visits)).any():
        return state, info
    safe = known(problem).policy
    proposed = propose(problem, hyper, counts, int(counts.visits[0].sum()) + 1)
    if proposed is None:
        plan = planning.Plan(safe, np.zeros_like(state.multipliers), state.basis, infeasible=True, value=np.nan)
    else:
        program = planning.program(problem.action_mask, len(problem.threshold), with_set)
        plan = program.solve(*proposed, problem.threshold, state.basis, elsewhere=safe)
    state = state._replace(
        policy=plan.policy,
        multipliers=plan.multipliers,
        basis=plan.basis,
        planned_visits=counts.visits,
        solved=state.solved + np.int32(proposed is not None),
        fallback=np.asarray(plan.infeasible, np.int32),
    )
    return state, info


def learner(name: str, hyperparameters: Callable[..., Any], propose: Propose, with_set: bool) -> Learner:
    """The learner that solves the program of `propose` after every episode, or plays the safe policy."""
    return Learner(
        name=name,
        hyperparameters=hyperparameters,
        init=lambda problem, hyper: init(problem, with_set),
        policy=lambda problem, hyper, state: state.policy,
        update=lambda problem, hyper, state, policy, trajectory: update(
            problem, hyper, state, trajectory, propose, with_set
        ),
        compiled=False,
        extra_knowledge=SAFE_POLICY,
    )
