"""Shared by the two learners that solve an LP in every episode: counts, widths, and when to solve.

Host learners: NumPy in float64, one lane at a time, so no array here has a trailing lane axis. H = L, n the visits
BEFORE the episode; the widths are those of `optimistic`:
    Lg = ln(6 |X| |A| H T / delta)
    beta_p(y|x,a) = 2 sqrt(p (1-p) Lg / max(1,n)) + (14/3) Lg / max(1,n),   beta_r(x,a) = sqrt(Lg / max(1,n))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cpdpo_jax.common.types import Array, Trajectory
from cpdpo_jax.learners import planning
from cpdpo_jax.learners.base import Info, Learner, Problem
from cpdpo_jax.learners.optimistic import log_term


class Hyperparameters(NamedTuple):
    """All [B]."""

    transition_confidence: Array  # multiplies the logarithm in beta_p
    payoff_confidence: Array  # multiplies the logarithm in beta_r
    solve_when_doubled: Array  # 0: an LP every episode; 1: only when a visit count has doubled since the last LP


class Counts(NamedTuple):
    """Visit counts and payoff sums."""

    visits: np.ndarray  # [L,S,A] int32
    transitions: np.ndarray  # [L-1,S,A,S] int32
    payoff_sum: np.ndarray  # [1+M,L,S,A] sampled rewards, then costs, summed


class State(NamedTuple):
    """State before episode t."""

    counts: Counts
    policy: np.ndarray  # [L,S,A] pi_t
    multipliers: np.ndarray  # [M] of the LP that gave pi_t
    basis: planning.Basis  # of the last LP; the next LP starts from it
    planned_visits: np.ndarray  # [L,S,A] int32, the visits at the last LP
    solved: np.ndarray  # [] int32, LPs so far
    infeasible: np.ndarray  # [] int32, how many of them no policy satisfied


class Widths(NamedTuple):
    """The estimates and their confidence widths."""

    transition: np.ndarray  # [L-1,S,A,S] p
    of_transition: np.ndarray  # [L-1,S,A,S] beta_p; 0 at padded next states
    payoff: np.ndarray  # [1+M,L,S,A] means
    of_payoff: np.ndarray  # [L,S,A] beta_r


Model = Callable[[Problem, Any, Counts], planning.Inputs]


def hyperparameters(problem: Problem, preset: str, tuned: tuple[float, float]) -> Hyperparameters:
    """The paper's constants ("theory"), or both logarithms times `tuned`: of transitions, of payoffs."""
    ones = np.ones_like(problem.episodes)
    transition, payoff = (1.0, 1.0) if preset == "theory" else tuned
    return Hyperparameters(transition * ones, payoff * ones, solve_when_doubled=0 * ones)


def init(problem: Problem, with_set: bool) -> State:
    """State before the first episode; pi_1 is the uniform policy."""
    mask, m = np.asarray(problem.action_mask), len(problem.threshold)
    n_layers, n_states, n_actions = mask.shape
    return State(
        counts=Counts(
            visits=np.zeros(mask.shape, np.int32),
            transitions=np.zeros((n_layers - 1, n_states, n_actions, n_states), np.int32),
            payoff_sum=np.zeros((1 + m, *mask.shape)),
        ),
        policy=mask / np.maximum(mask.sum(axis=2, keepdims=True), 1),
        multipliers=np.zeros(m),
        basis=planning.no_basis(mask.shape, m, with_set),
        planned_visits=np.zeros(mask.shape, np.int32),
        solved=np.zeros((), np.int32),
        infeasible=np.zeros((), np.int32),
    )


def count(counts: Counts, trajectory: Trajectory) -> Counts:
    """Count one episode."""
    visits, transitions, payoff_sum = (array.copy() for array in counts)
    k, x, a = np.arange(len(visits)), trajectory.state, trajectory.action
    visits[k, x, a] += 1
    transitions[k[:-1], x[:-1], a[:-1], x[1:]] += 1
    payoff_sum[0, k, x, a] += trajectory.reward
    payoff_sum[1:, k, x, a] += trajectory.cost
    return Counts(visits, transitions, payoff_sum)


def widths(problem: Problem, hyper: Hyperparameters, counts: Counts) -> Widths:
    """p, beta_p, means and beta_r."""
    log, n = log_term(problem), np.maximum(counts.visits, 1)
    return Widths(
        *transition_widths(problem, counts, hyper.transition_confidence * log),
        payoff=counts.payoff_sum / n,
        of_payoff=np.sqrt(hyper.payoff_confidence * log / n),
    )


def transition_widths(problem: Problem, counts: Counts, log: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """p and beta_p for a logarithm times its multiplier, both [L-1,S,A,S]."""
    n = np.maximum(counts.visits, 1)[:-1, :, :, None]
    p, per_visit = counts.transitions / n, log / n
    real: np.ndarray = problem.action_mask.any(axis=2)[1:, None, None]
    return p, (2 * np.sqrt(np.maximum(p * (1 - p), 0.0) * per_visit) + 14 / 3 * per_visit) * real


def empirical_model(problem: Problem, counts: Counts) -> planning.Set:
    """P_hat as a set of one model; a row that was never visited is uniform over the real next states."""
    real = problem.action_mask.any(axis=2)[1:, None, None]  # [L-1,1,1,S]
    uniform = real / np.maximum(real.sum(axis=3, keepdims=True), 1)
    visits = counts.visits[:-1, :, :, None]
    transition = np.where(visits > 0, counts.transitions / np.maximum(visits, 1), uniform)
    return planning.Set(transition, spare=np.zeros(transition.shape[:3]), cap=np.ones(transition.shape))


def update(
    problem: Problem, hyper: Hyperparameters, state: State, trajectory: Trajectory, model: Model, with_set: bool
) -> tuple[State, Info]:
    """Count episode t, then plan pi_{t+1}; the Info is that of pi_t, the policy played."""
    info = Info(state.multipliers, state.solved, state.infeasible)
    counts = count(state.counts, trajectory)
    state = state._replace(counts=counts)
    if hyper.solve_when_doubled and not (counts.visits >= np.maximum(1, 2 * state.planned_visits)).any():
        return state, info
    program = planning.program(problem.action_mask, len(problem.threshold), with_set)
    plan = program.solve(*model(problem, hyper, counts), problem.threshold, state.basis)
    state = State(
        counts=counts,
        policy=plan.policy,
        multipliers=plan.multipliers,
        basis=plan.basis,
        planned_visits=counts.visits,
        solved=state.solved + np.int32(1),
        infeasible=state.infeasible + np.int32(plan.infeasible),
    )
    return state, info


def learner(name: str, hyperparameters: Callable[..., Any], model: Model, with_set: bool) -> Learner:
    """The learner that solves the program of `model` after every episode."""
    return Learner(
        name=name,
        hyperparameters=hyperparameters,
        init=lambda problem, hyper: init(problem, with_set),
        policy=lambda problem, hyper, state: state.policy,
        update=lambda problem, hyper, state, policy, trajectory: update(
            problem, hyper, state, trajectory, model, with_set
        ),
        compiled=False,
    )
