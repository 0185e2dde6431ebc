"""OptCMDP-bonus (Efroni, Mannor, Pirotta 2020): a linear program in every episode, with bonuses for the unknown model.

What it does: plays the optimum of the empirical CMDP, its rewards raised and its costs lowered by a bonus that covers
the model's error: an LP over q(x,a), much smaller than that of `optcmdp`.
Cost per episode: one LP of L S A variables and L S rows, on the host, warm-started: 1.1 ms in total at 5 x 5 x 3
(m = 2), 0.9 ms at S = 10, 1.3 ms at S = 20 (`experiments/cost`). Memory O(L S^2 A).
Guarantee: STRONG regret and violation of order sqrt(T) with high probability, as `optcmdp` and with a larger dependence
on the sizes (as recalled).
When to use it: where `optcmdp` is too slow. Its bonuses are H |X| times wider, so their constants matter more.

    max over q >= 0 of sum q (r_hat + b)   s.t.   sum q (g_hat_i - b) <= alpha_i,   flow under P_hat
    b = beta_r + H sum_y beta_p(y|x,a), the sum over real next states, 0 in the last layer
with the counts from before episode t (widths in `replanning`, the LP in `planning`); nothing is clipped. A row of P_hat
never visited is uniform over the real next layer. pi_1 is uniform, as are states that the plan does not reach.
`solve_when_doubled`, `epochs`, `multipliers` and LPs that no policy satisfies: as in `optcmdp`.

Deviations: rewards are maximised and costs bounded from above; beta_r is recalled, not checked.
"""

from __future__ import annotations

from cpdpo_jax.learners import base, planning, replanning
from cpdpo_jax.learners.base import Problem
from cpdpo_jax.learners.replanning import Counts, Hyperparameters

TUNED = (1e-6, 1e-5)  # transition_confidence, payoff_confidence


def hyperparameters(problem: Problem, preset: str = "tuned") -> Hyperparameters:
    """The paper's constants ("theory"), or these times `TUNED` ("tuned"). Deviation: tuned."""
    return replanning.hyperparameters(problem, preset, TUNED)


def model(problem: Problem, hyper: Hyperparameters, counts: Counts) -> planning.Inputs:
    """r_hat + b [L,S,A], g_hat - b [M,L,S,A], and P_hat as a set of one model."""
    width = replanning.widths(problem, hyper, counts)
    bonus = width.of_payoff.copy()
    bonus[:-1] += len(bonus) * width.of_transition.sum(axis=3)
    return width.payoff[0] + bonus, width.payoff[1:] - bonus, replanning.empirical_model(problem, counts)


LEARNER = base.register(replanning.learner("optcmdp_bonus", hyperparameters, model, with_set=False))
