"""BV-OPS (Stradi et al. 2025): adversarial losses, stochastic constraints, no safe policy; bounded strong violation.

What it does: keeps an occupancy measure q_hat and plays its policy. After every episode it takes a mirror-descent step
on the estimated loss, projected onto the occupancy measures of the confidence set whose optimistic costs satisfy the
constraints (`optimistic_search` has the formulas).
Cost per episode: one backward recursion for all states, O(L^2 S^4 A), and the projection, a convex program with a
variable per state and constraint, on the host: about 2 ms at 5 x 5 x 3.
Guarantee: regret against the best feasible policy in hindsight and strong violation, both of order sqrt(T) with high
probability, for all losses in [0,1]; rho is not needed.
When to use it: losses that change with the episode, constraints that must hold up to sqrt(T). Needs T.

    pi_t(a|x) = q_hat(x,a) / q_hat(x);   reach(x,a) = pi_t(a|x) max over P in P_{t-1} of q^{P,pi_t}(x)
`multipliers` are the prices of the cost rows in the projection that gave q_hat, `epochs` counts confidence sets and
`infeasible` the projections whose cost rows had no solution.

Deviations: if the cost rows have no solution, q_hat is projected onto the confidence set alone (the paper takes any
measure of it); only allowed actions enter the initial q_hat. For "tuned" see `hyperparameters`.
"""

from __future__ import annotations

import numpy as np

from cpdpo_jax.common.types import Trajectory
from cpdpo_jax.learners import base, optimistic_search
from cpdpo_jax.learners.base import Info, Learner, Problem
from cpdpo_jax.learners.occupancy_measures import policy_of, upper_occupancies
from cpdpo_jax.learners.optimistic_search import Hyperparameters, State


def hyperparameters(problem: Problem, preset: str = "tuned") -> Hyperparameters:
    """The paper's constants ("theory"), or these rescaled ("tuned"), for which the guarantee does not hold.

    "tuned" is the best of a small search: 16 random choices (log-uniform) on one instance of each kind of
    `experiments/tuning`, T = 500, 1 seed. `RANGES` there has wider ranges.
    """
    return optimistic_search.hyperparameters(problem, None if preset == "theory" else (4.0, 0.2, 1e-7, 8e-6))


def init(problem: Problem, hyper: Hyperparameters) -> State:
    """State before the first episode."""
    return optimistic_search.init(problem)


def policy(problem: Problem, hyper: Hyperparameters, state: State) -> np.ndarray:
    """pi_t, [L,S,A]."""
    return policy_of(state.pairs, np.asarray(problem.action_mask))


def update(
    problem: Problem, hyper: Hyperparameters, state: State, policy: np.ndarray, trajectory: Trajectory
) -> tuple[State, Info]:
    """One step; the Info is that of pi_t."""
    reach = policy * upper_occupancies(state.lower, state.upper, policy)[:, :, None]
    after = optimistic_search.update(problem, hyper, state, reach, trajectory)
    return after, Info(state.multipliers, after.counts.visits[0].sum(dtype=np.int32), after.unsolvable)


LEARNER = base.register(
    Learner(name="bv_ops", hyperparameters=hyperparameters, init=init, policy=policy, update=update, compiled=False)
)
