"""S-OPS (Stradi et al. 2025): adversarial losses, stochastic constraints that hold in every episode, a safe policy.

What it does: as `bv_ops`, but for every episode it draws which policy to play throughout: the safe policy pi_b with
probability lambda_t, otherwise pihat, the policy of q_hat. lambda_t is the least weight with which the mixture
satisfies the constraints even if costs and occupancies are as large as the confidence sets allow.
Cost per episode: as `bv_ops`, and one more recursion for pi_b.
Guarantee: with high probability the MIXTURE lambda_t V(pi_b) + (1 - lambda_t) V(pihat) violates no constraint in any
episode, and regret of order sqrt(T) / gap against the best feasible policy in hindsight, for all losses in
[0,1]. A single draw of pihat may violate a constraint.
When to use it: losses that change with the episode, no expected cost above its threshold, a safe policy is known. Extra
knowledge: pi_b and its true costs beta. Needs T, not rho; gap = min_i alpha_i - beta_i.

    w_i = min(L, sum (g_hat_i + xi) reach_hat),   reach_hat(x,a) = pihat(a|x) max over P in P_{t-1} of q^{P,pihat}(x)
    lambda_t = max over the i with w_i > alpha_i of (w_i - alpha_i) / (w_i - beta_i), 0 if there is none;
               1 if the cost rows of the projection have no solution;   w_i = L in the first episode
    reach = lambda_t reach_b + (1 - lambda_t) reach_hat, for the loss estimate
The mixture is not the value of a Markov policy that the learner knows, so it declares `Learner.mixture`: the metrics of
`simulate` are those of the mixture. `dataclasses.replace(LEARNER, mixture=None)` counts the drawn policy instead.
`multipliers` are the prices of the cost rows in the projection that gave q_hat, `epochs` counts confidence sets and
`infeasible` the episodes of pi_b.

Deviations: `reach` adds the bounds of the two policies, where the paper takes the largest occupancy of the mixture over
one common P, which is no larger (the paper's analysis also bounds the two separately); only allowed actions enter the
initial q_hat; the projection onto the confidence set alone if the cost rows have no solution (the paper: any measure
of it). For "tuned" see `hyperparameters`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cpdpo_jax.common.types import Trajectory
from cpdpo_jax.kernels.threefry import threefry2x32
from cpdpo_jax.learners import base, optimistic_search, safe_planning
from cpdpo_jax.learners.base import Info, Learner, Problem
from cpdpo_jax.learners.occupancy_measures import policy_of, upper_occupancies
from cpdpo_jax.learners.optimistic_search import Hyperparameters


class State(NamedTuple):
    """State before episode t."""

    search: optimistic_search.State
    weight: np.ndarray  # [] lambda_t
    reach: np.ndarray  # [L,S,A] upper bounds on the occupancy of the mixture
    plays_safe: np.ndarray  # [] int32, 1 if pi_b was drawn
    safe_episodes: np.ndarray  # [] int32, episodes before t in which pi_b was played


def hyperparameters(problem: Problem, preset: str = "tuned") -> Hyperparameters:
    """The paper's constants ("theory"), or these rescaled ("tuned"), for which the guarantee does not hold.

    "tuned" is from a small search: 16 random choices (log-uniform) on one instance of each kind of
    `experiments/tuning`, T = 500, 1 seed; the best of those without violation (by 0.5 %, within noise). `RANGES`
    there has wider ranges.
    """
    return optimistic_search.hyperparameters(problem, None if preset == "theory" else (3.0, 0.04, 6e-4, 2.5e-4))


def drawn(
    problem: Problem,
    hyper: Hyperparameters,
    search: optimistic_search.State,
    key: np.ndarray,
    safe_episodes: np.ndarray,
) -> State:
    """Weigh pi_b against the policy of q_hat, and draw one of them."""
    safe, n_layers = safe_planning.known(problem), len(problem.action_mask)
    reach = _reach(search, policy_of(search.pairs, np.asarray(problem.action_mask)))
    if search.counts.visits.any():
        mean, width = optimistic_search.costs(problem, hyper, search.counts)
        most = np.minimum(n_layers, ((mean + width) * reach).sum(axis=(1, 2, 3)))
    else:
        most = np.full(len(problem.threshold), float(n_layers))
    above = most > problem.threshold
    weights = (most - problem.threshold)[above] / (most - np.asarray(safe.cost))[above]
    weight = float(weights.max(initial=0.0)) if search.solvable else 1.0
    if weight > 0:
        reach = weight * _reach(search, np.asarray(safe.policy)) + (1 - weight) * reach
    return State(
        search=search,
        weight=np.asarray(weight),
        reach=reach,
        plays_safe=np.asarray(uniform(key) < weight, np.int32),
        safe_episodes=safe_episodes,
    )


def _reach(search: optimistic_search.State, policy: np.ndarray) -> np.ndarray:
    return policy * upper_occupancies(search.lower, search.upper, policy)[:, :, None]


def uniform(key: np.ndarray) -> float:
    """A uniform number of a key [2], of 24 bits as `kernels.uniforms` makes them."""
    word = threefry2x32((key[:1], key[1:]), (np.zeros(1, np.uint32), np.zeros(1, np.uint32)))[0]
    return float((word >> np.uint32(8))[0]) * 2.0**-24


def init(problem: Problem, hyper: Hyperparameters, key: np.ndarray) -> State:
    """State before the first episode: every cost may be L."""
    return drawn(problem, hyper, optimistic_search.init(problem), key, np.zeros((), np.int32))


def policy(problem: Problem, hyper: Hyperparameters, state: State) -> np.ndarray:
    """The policy drawn, [L,S,A]."""
    policies = mixture(problem, hyper, state)[1]
    return policies[0] if state.plays_safe else policies[1]


def mixture(problem: Problem, hyper: Hyperparameters, state: State) -> tuple[np.ndarray, np.ndarray]:
    """The distribution that the policy was drawn from: weights [2], policies [2,L,S,A], pi_b first."""
    learned = policy_of(state.search.pairs, np.asarray(problem.action_mask))
    safe = np.asarray(safe_planning.known(problem).policy)
    return np.stack([state.weight, 1 - state.weight]), np.stack([safe, learned])


def update(
    problem: Problem, hyper: Hyperparameters, state: State, policy: np.ndarray, trajectory: Trajectory, key: np.ndarray
) -> tuple[State, Info]:
    """One step, then the draw for the next episode; the Info is that of episode t."""
    search = optimistic_search.update(problem, hyper, state.search, state.reach, trajectory)
    safe_episodes = state.safe_episodes + state.plays_safe
    info = Info(state.search.multipliers, search.counts.visits[0].sum(dtype=np.int32), safe_episodes)
    return drawn(problem, hyper, search, key, safe_episodes), info


LEARNER = base.register(
    Learner(
        name="s_ops",
        hyperparameters=hyperparameters,
        init=init,
        policy=policy,
        update=update,
        compiled=False,
        extra_knowledge=base.SAFE_POLICY,
        randomness=True,
        mixture=mixture,
    )
)
