"""Shared by `bv_ops` and `s_ops`: mirror descent over occupancy measures with optimistic costs within the thresholds.

    u = ln(8 m |X|^2 |A| T / delta);  N, M counts with episode t;  P_bar = M / N;  g_hat the mean costs, 0 if unseen
    xi(x,a) = min(1, sqrt(4 c_r u / N)),   1 if unseen
    eps(x,a,y) = min(1, 2 sqrt(P_bar c_p u / (N-1)) + 14 c_p u / (3 (N-1))),   1 for N <= 1;   P_t: |P - P_bar| <= eps
    l_hat = loss / (reach + gamma) at visited pairs, else 0;   reach(x,a): a bound on the probability to get there
    q_hat <- argmin KL(q, q_hat exp(-eta l_hat)) over q in Delta(P_t) with (g_hat_i - xi).q <= alpha_i for every i
    eta = gamma = sqrt(L u / (T |X| |A|)),   c_p = c_r = 1
At first q_hat is uniform over the triples of a layer. The loss is 1 - reward. If the cost rows have no solution in
Delta(P_t), that projection omits them (`solvable` is then 0).

Host learners: NumPy in float64, no lane axis.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cpdpo_jax.common.types import Array, Trajectory
from cpdpo_jax.learners import occupancy_measures, replanning
from cpdpo_jax.learners.base import Problem
from cpdpo_jax.learners.entropy_projection import Projection
from cpdpo_jax.learners.replanning import Counts

SOLVED = 1e-7  # the largest residual of a projection that counts as solved
_TINY = 1e-300  # the least occupancy kept: an occupancy that underflowed would remain 0


class Hyperparameters(NamedTuple):
    """All [B]."""

    policy_rate: Array  # eta
    exploration: Array  # gamma, the implicit exploration
    transition_confidence: Array  # c_p, multiplies the logarithm in eps
    payoff_confidence: Array  # c_r, multiplies the logarithm in xi


class State(NamedTuple):
    """State before episode t."""

    counts: Counts
    pairs: np.ndarray  # [L,S,A] q_hat(x,a)
    conditional: np.ndarray  # [L-1,S,A,S] q_hat(x,a,y) / q_hat(x,a), a transition function of the set
    lower: np.ndarray  # [L-1,S,A,S] the box of the confidence set P_{t-1}
    upper: np.ndarray  # [L-1,S,A,S]
    multipliers: np.ndarray  # [M] prices of the cost rows in the projection that gave q_hat
    solvable: np.ndarray  # [] int32, 0 if the cost rows had no solution in that projection
    unsolvable: np.ndarray  # [] int32, how many projections so far had none


def hyperparameters(problem: Problem, tuned: tuple[float, float, float, float] | None) -> Hyperparameters:
    """The paper's constants (None), or those times `tuned`, in the order of the fields."""
    horizon, pairs = problem.action_mask.shape[0], problem.n_states * problem.n_actions
    rate = np.sqrt(horizon * log_term(problem) / (problem.episodes * pairs))
    ones = np.ones_like(problem.episodes)
    values = rate, rate, ones, ones
    return Hyperparameters(*(value * factor for value, factor in zip(values, tuned or (1.0,) * 4, strict=True)))


def log_term(problem: Problem) -> np.ndarray:
    """u."""
    return np.log(
        8 * len(problem.threshold) * problem.n_states**2 * problem.n_actions * problem.episodes / problem.delta
    )


def init(problem: Problem) -> State:
    """State before the first episode: all transition functions, equal occupancies for all triples of a layer."""
    mask: np.ndarray = np.asarray(problem.action_mask)
    pairs, conditional, everything = occupancy_measures.start(mask)
    counts = Counts(
        visits=np.zeros(mask.shape, np.int32),
        transitions=np.zeros(everything.shape, np.int32),
        payoff_sum=np.zeros((1 + len(problem.threshold), *mask.shape)),
    )
    return State(
        counts=counts,
        pairs=pairs,
        conditional=conditional,
        lower=0 * everything,
        upper=everything,
        multipliers=np.zeros(len(problem.threshold)),
        solvable=np.ones((), np.int32),
        unsolvable=np.zeros((), np.int32),
    )


def costs(problem: Problem, hyper: Hyperparameters, counts: Counts) -> tuple[np.ndarray, np.ndarray]:
    """g_hat [M,L,S,A] and xi [L,S,A]."""
    n = np.maximum(counts.visits, 1)
    width = np.minimum(1.0, np.sqrt(4 * hyper.payoff_confidence * log_term(problem) / n))
    return counts.payoff_sum[1:] / n, np.where(counts.visits > 0, width, 1.0)


def confidence_box(problem: Problem, hyper: Hyperparameters, counts: Counts) -> tuple[np.ndarray, np.ndarray]:
    """The set P_t: the least and the largest P(y|x,a), [L-1,S,A,S]; 0 and 1 at real next states for N <= 1."""
    log, n = hyper.transition_confidence * log_term(problem), counts.visits[:-1, :, :, None]
    mean, fewer = counts.transitions / np.maximum(n, 1), np.maximum(n - 1, 1)
    width = np.where(n > 1, 2 * np.sqrt(mean * log / fewer) + 14 * log / (3 * fewer), 1.0)
    real = np.asarray(problem.action_mask.any(axis=2))[1:, None, None]
    return np.maximum(mean - width, 0.0) * real, np.minimum(mean + width, 1.0) * real


def update(problem: Problem, hyper: Hyperparameters, state: State, reach: np.ndarray, trajectory: Trajectory) -> State:
    """Estimate the losses of episode t, count it, and project; reach [L,S,A] is that of what was played."""
    k, x, a = np.arange(len(reach)), trajectory.state, trajectory.action
    lost = np.zeros(reach.shape)  # eta l_hat
    lost[k, x, a] = hyper.policy_rate * (1 - np.asarray(trajectory.reward)) / (reach[k, x, a] + hyper.exploration)
    counts = replanning.count(state.counts, trajectory)
    lower, upper = confidence_box(problem, hyper, counts)
    mean, width = costs(problem, hyper, counts)
    last = np.log(np.maximum(state.pairs[-1], _TINY)) - lost[-1]
    triples = np.log(np.maximum(state.pairs[:-1, :, :, None] * state.conditional, _TINY)) - lost[:-1, :, :, None]
    within = triples, last, lower, upper, np.asarray(problem.action_mask)
    projection = Projection(*within, mean - width, problem.threshold).solve()
    solvable = projection.residual < SOLVED
    if not solvable:
        projection = Projection(*within).solve()
    return State(
        counts=counts,
        pairs=projection.pairs,
        conditional=projection.conditional,
        lower=lower,
        upper=upper,
        multipliers=projection.multipliers if solvable else np.zeros(len(problem.threshold)),
        solvable=np.asarray(solvable, np.int32),
        unsolvable=state.unsolvable + np.int32(not solvable),
    )
