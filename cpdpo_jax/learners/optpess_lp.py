"""OptPess-LP (Liu, Zhou, Kalathil, Kumar, Tian 2021): no violation in any episode, from a safe policy.

What it does: plays the safe policy pi_b until the model is accurate enough that even pi_b's pessimistic cost is half
its gap below the threshold, then in every episode the best policy of the empirical CMDP whose costs are raised by their
uncertainty (so that its policies are safe) and whose rewards are raised more (so that it still explores). Cost per
episode: one evaluation and one LP of L S A variables, on the host, as `optcmdp_bonus`. Guarantee: with high probability
no constraint is violated in ANY episode, and regret of order H^3 sqrt(S^3 A T) / gap + a constant / gap^2 (as
recalled). With "theory" pi_b is played for longer than any feasible run. When to use it: no episode may be unsafe, and
a safe policy is known. Extra knowledge: pi_b and its true costs C_b. Needs T, not rho; gap = min_i alpha_i - C_b,i.

    i = ln(32 |X|^2 H T / delta);   w = min(L-k, sqrt(c_r i / n) + |X_{k+1}| H sqrt(c_p i / n)),   L-k if never seen
    g~_i = g_hat_i + w,   r~ = r_hat + (1 + compensation) w,   compensation = 4H / gap
    pi_b if V^{pi_b}(g~_i) >= (alpha_i + C_b,i) / 2 under P_hat for some i, or if the LP has no solution, else
    max over q >= 0 of sum q r~   s.t.   sum q g~_i <= alpha_i,   flow under P_hat
with the counts n from before episode t; no second term of w in the last layer. A row of P_hat never visited is uniform
over the real next states. `multipliers` are the LP's, `epochs` counts LPs, `infeasible` the episodes of pi_b,
`solve_when_doubled` is as in `optcmdp`.

Deviations: payoffs are unknown (their widths join those of the transitions); w is truncated at L-k, and is L-k for
a pair never seen for any constants; |X_{k+1}| replaces |X|; states that the plan does not reach play pi_b;
with several constraints, each must pass (the paper has one). For "tuned" see `hyperparameters`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cpdpo_jax.common.types import Array
from cpdpo_jax.learners import base, planning, replanning, safe_planning
from cpdpo_jax.learners.base import Problem
from cpdpo_jax.learners.replanning import Counts


class Hyperparameters(NamedTuple):
    """All [B]."""

    compensation: Array  # the reward's bonus is (1 + compensation) w
    transition_confidence: Array  # c_p, multiplies the logarithm
    payoff_confidence: Array  # c_r, multiplies the logarithm
    solve_when_doubled: Array  # 0: an LP every episode; 1: only when a visit count has doubled since the last plan


def hyperparameters(problem: Problem, preset: str = "tuned") -> Hyperparameters:
    """The paper's constants ("theory"), or small constants ("tuned"), for which the guarantee does not hold.

    "tuned" was chosen by hand on two random CMDPs (5 layers of 5 states, 3 actions, keys 1000 and 1001, T = 1,000).
    Ranges for a search: transition_confidence 1e-8..1e-4 and payoff_confidence 1e-5..1e-2 (log-uniform), compensation
    0..1.
    """
    ones = np.ones_like(problem.episodes)
    if preset == "theory":
        horizon = problem.action_mask.shape[0]
        return Hyperparameters(4 * horizon / safe_planning.gap(problem), ones, ones, 0 * ones)
    return Hyperparameters(0 * ones, 1e-6 * ones, 1e-4 * ones, 0 * ones)


def model(problem: Problem, hyper: Hyperparameters, counts: Counts) -> planning.Inputs:
    """r~ [L,S,A], g~ [M,L,S,A], and P_hat as a set of one model."""
    n_layers, n = len(counts.visits), np.maximum(counts.visits, 1)
    real = problem.action_mask.any(axis=2)[1:, None, None]  # [L-1,1,1,S]
    next_states = np.append(real.sum(axis=3).ravel(), 0)[:, None, None]  # [L,1,1]
    log = np.log(32 * problem.n_states**2 * n_layers * problem.episodes / problem.delta)
    of_payoff, of_transition = (np.sqrt(c * log / n) for c in (hyper.payoff_confidence, hyper.transition_confidence))
    most = np.arange(n_layers, 0, -1.0)[:, None, None]  # L - k, [L,1,1]: the largest possible error of a step
    width = np.where(counts.visits > 0, np.minimum(most, of_payoff + next_states * n_layers * of_transition), most)
    mean = counts.payoff_sum / n
    return mean[0] + (1 + hyper.compensation) * width, mean[1:] + width, replanning.empirical_model(problem, counts)


def propose(problem: Problem, hyper: Hyperparameters, counts: Counts, episode: int) -> planning.Inputs | None:
    """The LP, or None while pi_b is not yet seen to be safe by half of its gap."""
    reward, cost, within = model(problem, hyper, counts)
    safe = safe_planning.known(problem)
    if (safe_planning.value(within.lower, safe.policy, cost) >= (problem.threshold + safe.cost) / 2).any():
        return None
    return reward, cost, within


LEARNER = base.register(safe_planning.learner("optpess_lp", hyperparameters, propose, with_set=False))
