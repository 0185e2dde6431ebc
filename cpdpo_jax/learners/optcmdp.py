"""OptCMDP (Efroni, Mannor, Pirotta 2020): optimistic planning by a linear program in every episode.

What it does: plays the best policy of the best model of the confidence set, both from a single LP over
z(x,a,x'), the probability of a transition; the constraints hold for the optimistic costs.
Cost per episode: one LP of about L S^2 A variables and as many rows, on the host, warm-started: 1.8 ms in total
at 5 x 5 x 3 (m = 2), 7.7 ms at S = 10, 20 ms at S = 20 (`experiments/cost`). Memory O(L S^2 A).
Guarantee: STRONG regret and violation of order sqrt(T) with high probability: sums of positive parts, no cancellation
between episodes (as recalled: the paper has these for its LP methods, and weak ones for its dual methods).
When to use it: small problems in which episodes are scarce and time is not. Needs T for the widths, not rho.

    max over z of sum z r~  s.t.  sum z g~_i <= alpha_i, flow, (p - beta_p) sum_y z <= z(x,a,x') <= (p + beta_p) sum_y z
    r~ = clip(r_hat + beta_r, 0, 1), g~_i = clip(g_hat_i - beta_r, 0, 1), the bounds on P cut to [0,1]
with the counts from before episode t (widths in `replanning`, the LP in `planning`). pi_1 is uniform, and so is pi_t at
states that the plan does not reach. In the last layer z is z(x,a): the step to x_L is known. `multipliers` are the LP's
and `epochs` counts LPs. `solve_when_doubled = 1` solves after an episode in which a visit count has doubled since the
last LP: O(|X||A| log T) LPs. Where no policy satisfies the constraints (possible with small constants), a second LP
minimises the sum of excesses; its policy and multipliers are then used. `infeasible` counts these cases.

Deviations: rewards are maximised and costs bounded from above; a pair never visited has the whole simplex of real next
states, whatever the multiplier of the logarithm (Deviation: unseen-pairs); beta_r is recalled, not checked.
"""

from __future__ import annotations

import numpy as np

from cpdpo_jax.learners import base, planning, replanning
from cpdpo_jax.learners.base import Problem
from cpdpo_jax.learners.replanning import Counts, Hyperparameters

TUNED = (5e-3, 1e-6)  # transition_confidence, payoff_confidence
_NOTHING_SPARE = 1e-9  # below this, the set is a single model


def hyperparameters(problem: Problem, preset: str = "tuned") -> Hyperparameters:
    """The paper's constants ("theory"), or these times `TUNED` ("tuned"). Deviation: tuned."""
    return replanning.hyperparameters(problem, preset, TUNED)


def model(problem: Problem, hyper: Hyperparameters, counts: Counts) -> planning.Inputs:
    """Optimistic reward [L,S,A], costs [M,L,S,A], and the confidence set."""
    width = replanning.widths(problem, hyper, counts)
    reward = np.clip(width.payoff[0] + width.of_payoff, 0.0, 1.0)
    cost = np.clip(width.payoff[1:] - width.of_payoff, 0.0, 1.0)
    return reward, cost, confidence_set(width.transition, width.of_transition, counts.visits[:-1] > 0)


def confidence_set(p: np.ndarray, beta: np.ndarray, visited: np.ndarray) -> planning.Set:
    """|P - p| <= beta within [0,1], [L-1,S,A,S]; the whole simplex where not `visited` [L-1,S,A].

    The spare mass is the sum of p - lower rather than 1 minus a sum, so narrow sets lose no digits.
    """
    lower, upper = np.maximum(p - beta, 0.0), np.minimum(p + beta, 1.0)
    spare = np.where(visited, (p - lower).sum(axis=3), 1.0)
    room, mass = upper - lower, spare[:, :, :, None]
    is_free = ~visited[:, :, :, None] | (mass <= _NOTHING_SPARE) | (room >= mass)
    cap = np.where(is_free, 1.0, room / np.maximum(mass, _NOTHING_SPARE))
    return planning.Set(lower, spare, cap)


LEARNER = base.register(replanning.learner("optcmdp", hyperparameters, model, with_set=True))
