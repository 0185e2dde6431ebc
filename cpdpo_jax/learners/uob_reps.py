"""UOB-REPS (Jin, Jin, Luo, Sra, Yu 2020): adversarial losses, bandit feedback, unknown transitions; no constraints.

What it does: keeps an occupancy measure q_hat, plays its policy, divides the observed losses by the largest
probability (over the confidence set) of getting there, and takes a mirror-descent step in relative entropy, projected
onto the occupancy measures of the confidence set. The rival of `podb`, which needs no projection.
Cost per episode: one backward recursion per state, O(L^2 S^4 A), and the projection, a convex program with a
variable per state (`entropy_projection`), on the host: 1 to 3 ms at 5 x 5 x 3.
Guarantee: regret of order L |X| sqrt(|A| T) against the best fixed policy in hindsight, with high probability,
for all losses in [0,1]. It ignores every constraint.
When to use it: losses that change with the episode, and time for the projection. Needs T.

    pi_t(a|x) = sum_y q_hat(x,a,y) / sum_{a,y} q_hat(x,a,y)
    u(x,a) = pi_t(a|x) max over P in the set of q^{P,pi_t}(x);   l_hat = loss / (u + gamma) at visited pairs, else 0
    q_hat <- argmin over the occupancy measures of the set of KL(q, q_hat exp(-eta l_hat))
    set: |P - P_bar| <= 2 sqrt(P_bar l / max(1,n-1)) + 14 l / (3 max(1,n-1)),   l = ln(T |X| |A| / delta)
    eta = gamma = sqrt(L ln(L |X| |A| / delta) / (T |X| |A|))
The set changes when a visited pair has doubled its count (an epoch, as in `podb`). Initially it contains all transition
functions, and q_hat is uniform over the triples of a layer, so pi_1 is uniform. Here the loss is 1 - reward.

Deviations: a pair never seen has the whole simplex, whatever the multiplier of the logarithm (Deviation: unseen-pairs);
only allowed actions enter the initial q_hat. For "tuned" see `hyperparameters`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cpdpo_jax.common.types import Array, Trajectory
from cpdpo_jax.learners import base, occupancy_measures
from cpdpo_jax.learners.base import Info, Learner, Problem
from cpdpo_jax.learners.entropy_projection import Projection
from cpdpo_jax.learners.occupancy_measures import policy_of, upper_occupancies

_TINY = 1e-300  # the least occupancy that is stored: an occupancy that underflowed would remain 0


class Hyperparameters(NamedTuple):
    """All [B]."""

    policy_rate: Array  # eta
    exploration: Array  # gamma, the implicit exploration
    transition_confidence: Array  # multiplies the logarithm in the transition widths


class State(NamedTuple):
    """State before episode t."""

    pairs: np.ndarray  # [L,S,A] sum_y q_hat
    conditional: np.ndarray  # [L-1,S,A,S] q_hat / sum_y q_hat, a transition function of the set
    visits: np.ndarray  # [L,S,A] int32
    transitions: np.ndarray  # [L-1,S,A,S] int32
    visits_at_epoch: np.ndarray  # [L,S,A] int32
    lower: np.ndarray  # [L-1,S,A,S] the box of the confidence set
    upper: np.ndarray  # [L-1,S,A,S]
    epochs: np.ndarray  # [] int32
    residual: np.ndarray  # [] residual of q_hat in the flow constraints: the error of the projection


def hyperparameters(problem: Problem, preset: str = "tuned") -> Hyperparameters:
    """The paper's constants ("theory"), or those times multipliers ("tuned").

    "tuned" was chosen by hand on a random MDP (4 layers of 4 states, 3 actions, key 1000, T = 500). Log-uniform ranges
    for a search: policy_rate x1..x100, exploration x0.001..x1, transition_confidence 1e-5..1e-1.
    """
    n_layers, pairs = problem.action_mask.shape[0], problem.n_states * problem.n_actions
    rate = np.sqrt(n_layers * np.log(n_layers * pairs / problem.delta) / (problem.episodes * pairs))
    ones = np.ones_like(problem.episodes)
    if preset == "theory":
        return Hyperparameters(rate, rate, ones)
    return Hyperparameters(3 * rate, 0.1 * rate, 1e-3 * ones)


def init(problem: Problem, hyper: Hyperparameters) -> State:
    """State before the first episode: all transition functions, and equal occupancies for all triples of a layer."""
    mask: np.ndarray = np.asarray(problem.action_mask)
    pairs, conditional, everything = occupancy_measures.start(mask)
    none = np.zeros(mask.shape, np.int32)
    return State(
        pairs=pairs,
        conditional=conditional,
        visits=none,
        transitions=np.zeros(everything.shape, np.int32),
        visits_at_epoch=none,
        lower=0 * everything,
        upper=everything,
        epochs=np.ones((), np.int32),
        residual=np.zeros(()),
    )


def policy(problem: Problem, hyper: Hyperparameters, state: State) -> np.ndarray:
    """pi_t(a|x) = q_hat(x,a) / q_hat(x); uniform where q_hat(x) underflowed."""
    return policy_of(state.pairs, np.asarray(problem.action_mask))


def counted(problem: Problem, hyper: Hyperparameters, state: State, trajectory: Trajectory) -> State:
    """Count the episode; if a visited pair has doubled its count, begin a new epoch with its set."""
    visits, transitions = state.visits.copy(), state.transitions.copy()
    k, x, a = np.arange(len(visits)), trajectory.state, trajectory.action
    visits[k, x, a] += 1
    transitions[k[:-1], x[:-1], a[:-1], x[1:]] += 1
    state = state._replace(visits=visits, transitions=transitions)
    if not (visits[k, x, a] >= np.maximum(1, 2 * state.visits_at_epoch[k, x, a])).any():
        return state
    inside = problem.episodes * problem.n_states * problem.n_actions / problem.delta
    log = hyper.transition_confidence * np.log(inside)
    n = visits[:-1, :, :, None]
    mean, fewer = transitions / np.maximum(n, 1), np.maximum(n - 1, 1)
    width = 2 * np.sqrt(mean * log / fewer) + 14 * log / (3 * fewer)
    real = np.asarray(problem.action_mask.any(axis=2))[1:, None, None]
    lower = np.where((n > 0) & real, np.maximum(mean - width, 0.0), 0.0)
    upper = np.where((n > 0) & real, np.minimum(mean + width, 1.0), 1.0 * real)
    return state._replace(visits_at_epoch=visits, lower=lower, upper=upper, epochs=state.epochs + np.int32(1))


def step(
    problem: Problem, hyper: Hyperparameters, state: State, policy: np.ndarray, trajectory: Trajectory, loss: np.ndarray
) -> State:
    """One update from the losses [L] of the visited pairs."""
    estimate = np.zeros(policy.shape)
    k, x, a = np.arange(len(policy)), trajectory.state, trajectory.action
    upper = policy[k, x, a] * upper_occupancies(state.lower, state.upper, policy)[k, x]
    estimate[k, x, a] = loss / (upper + hyper.exploration)
    state = counted(problem, hyper, state, trajectory)
    mask = np.asarray(problem.action_mask)
    with np.errstate(divide="ignore"):
        pairs = np.log(np.maximum(state.pairs, _TINY)) - hyper.policy_rate * estimate
        triples = np.log(np.maximum(state.pairs[:-1, :, :, None] * state.conditional, _TINY))
    triples = triples - (hyper.policy_rate * estimate)[:-1, :, :, None]
    projection = Projection(triples, pairs[-1], state.lower, state.upper, mask).solve()
    return state._replace(
        pairs=projection.pairs, conditional=projection.conditional, residual=np.asarray(projection.residual)
    )


def update(
    problem: Problem, hyper: Hyperparameters, state: State, policy: np.ndarray, trajectory: Trajectory
) -> tuple[State, Info]:
    """UOB-REPS with the loss 1 - reward."""
    state = step(problem, hyper, state, policy, trajectory, 1 - np.asarray(trajectory.reward))
    return state, Info(np.zeros_like(problem.threshold), state.epochs, np.zeros((), np.int32))


LEARNER = base.register(
    Learner(name="uob_reps", hyperparameters=hyperparameters, init=init, policy=policy, update=update, compiled=False)
)
