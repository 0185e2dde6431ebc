"""DOPE (Bura et al. 2022): no violation in any episode, by optimistic rewards, pessimistic costs and a safe policy.

What it does: plays the safe policy pi_b at first, then in every episode the best policy of the best model of the
confidence set (as `optcmdp`) whose costs are raised by their uncertainty and whose rewards are raised more.
Cost per episode: one LP of about L S^2 A variables, on the host, as `optcmdp`; none in the first `safe_episodes`.
Guarantee: with high probability no constraint is violated in ANY episode, and regret of order |X| sqrt(|A| T) / gap up
to powers of H. With "theory" the start alone, |X|^2 |A| H^3 / gap^2 episodes, is longer than most runs.
When to use it: no episode may be unsafe, and a safe policy is known. Extra knowledge: pi_b and its true costs C_b.
Needs T, not rho; gap = min_i alpha_i - C_b,i.

    i = ln(6 |X|^2 H T / delta);   beta_r = 2 sqrt(c_r i / n);   beta_p(y) = 2 sqrt(p (1-p) c_p i / n) + 14/3 c_p i / n
    D = H sum_y beta_p(y);   w = min(L-k, beta_r + D),   u = min(L-k, 3 beta_r + D),   both L-k if never seen
    g~_i = g_hat_i + w,   r~ = r_hat + compensation u,   compensation = H / gap
    pi_b if t <= safe_episodes or if the LP has no solution, else
    max over z of sum z r~  s.t.  sum z g~_i <= alpha_i, flow, (p - beta_p) sum_y z <= z(x,a,x') <= (p + beta_p) sum_y z
with the counts n from before episode t; D = 0 in the last layer. `multipliers` are the LP's, `epochs` counts LPs,
`infeasible` the episodes of pi_b, `solve_when_doubled` is as in `optcmdp`.

Deviations: payoffs are unknown, as in commented-out lines of the authors' code; w and u are truncated at L-k; a pair
never seen has the whole simplex and full widths for any constants; states that the plan does not reach play pi_b;
with several constraints, the gap is the smallest (the paper has one constraint). For "tuned" see `hyperparameters`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cpdpo_jax.common.types import Array
from cpdpo_jax.learners import base, planning, replanning, safe_planning
from cpdpo_jax.learners.base import Problem
from cpdpo_jax.learners.optcmdp import confidence_set
from cpdpo_jax.learners.replanning import Counts


class Hyperparameters(NamedTuple):
    """All [B]."""

    compensation: Array  # the reward's bonus is compensation u
    safe_episodes: Array  # the number of first episodes in which pi_b is played
    transition_confidence: Array  # c_p, multiplies the logarithm
    payoff_confidence: Array  # c_r, multiplies the logarithm
    solve_when_doubled: Array  # 0: an LP every episode; 1: only when a visit count has doubled since the last plan


def hyperparameters(problem: Problem, preset: str = "tuned") -> Hyperparameters:
    """The paper's constants ("theory"), or small constants ("tuned"), for which the guarantee does not hold.

    "tuned" was chosen by hand on two random CMDPs (5 layers of 5 states, 3 actions, keys 1000 and 1001, T = 1,000);
    pi_b is then played exactly while the LP has no solution. Ranges for a search: transition_confidence 1e-8..1e-4 and
    payoff_confidence 1e-6..1e-2 (log-uniform), compensation 0..1.
    """
    ones = np.ones_like(problem.episodes)
    if preset == "theory":
        horizon, gap = problem.action_mask.shape[0], safe_planning.gap(problem)
        start = problem.n_states**2 * problem.n_actions * horizon**3 / gap**2
        return Hyperparameters(horizon / gap, start, ones, ones, 0 * ones)
    return Hyperparameters(0.5 * ones, 0 * ones, 1e-7 * ones, 1e-4 * ones, 0 * ones)


def model(problem: Problem, hyper: Hyperparameters, counts: Counts) -> planning.Inputs:
    """r~ [L,S,A], g~ [M,L,S,A], and the confidence set."""
    n_layers, n = len(counts.visits), np.maximum(counts.visits, 1)
    log = np.log(6 * problem.n_states**2 * n_layers * problem.episodes / problem.delta)
    p, beta = replanning.transition_widths(problem, counts, hyper.transition_confidence * log)
    spread = np.append(n_layers * beta.sum(axis=3), np.zeros((1, *n.shape[1:])), axis=0)  # D
    of_payoff = 2 * np.sqrt(hyper.payoff_confidence * log / n)
    most = np.arange(n_layers, 0, -1.0)[:, None, None]  # L - k, [L,1,1]: the largest possible error of a step
    width, larger = (
        np.where(counts.visits > 0, np.minimum(most, factor * of_payoff + spread), most) for factor in (1, 3)
    )
    mean = counts.payoff_sum / n
    within = confidence_set(p, beta, counts.visits[:-1] > 0)
    return mean[0] + hyper.compensation * larger, mean[1:] + width, within


def propose(problem: Problem, hyper: Hyperparameters, counts: Counts, episode: int) -> planning.Inputs | None:
    """The LP, or None at the start."""
    return None if episode <= hyper.safe_episodes else model(problem, hyper, counts)


LEARNER = base.register(safe_planning.learner("dope", hyperparameters, propose, with_set=True))
