"""Thresholds for drawn payoffs: a requested Slater margin, and constraints that bind.

Why this is possible. For weights w > 0 and s from 0 to infinity let pi(s) maximise r - s w.g, alpha(s) = V^pi(s)(g).
With the thresholds alpha(s) the policy pi(s) is optimal and s w are multipliers, all positive: every constraint binds.
The same holds on the segment between neighbours of the path. At s = 0 the thresholds are the costs of the unconstrained
optimum, at infinity rho = 0, so a requested rho in between is attained along the path. The remaining difference is
removed by an exact shift, since rho(alpha + c) = rho(alpha) + c.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cpdpo_jax.common.types import CMDP
from cpdpo_jax.exact.lp import Model, Program, evaluate, plan, until_certified
from cpdpo_jax.exact.optimum import Solution, solve

MARGIN_ERROR = 1e-6  # tolerated error of rho
LEAST_MULTIPLIER = 1e-3  # a constraint with a smaller multiplier does not count as binding
LEAST_MARGIN = 1e-9  # below it no learner that needs a Slater policy runs: such a draw is rejected
_SCALES = np.concatenate([[0.0], np.geomspace(0.02, 500.0, 40), [np.inf]])
_PATHS = 6  # weights tried before the draw is rejected


class Unreachable(Exception):
    """The draw cannot attain the requested value; `best` is the largest margin worth requesting."""

    def __init__(self, best: float):
        super().__init__(best)
        self.best = best


def place(
    cmdp: CMDP, rng: np.random.Generator, rhos: tuple[float, ...] | None, tightness: float, binding: bool
) -> list[CMDP]:
    """The CMDP with thresholds for each margin of `rhos` (ascending; moved together), or for a tightness.

    Raises:
        Unreachable: impossible for these P, r and g.
    """
    m = cmdp.n_constraints
    least = np.array([-plan(cmdp.transition, -cost, cmdp.action_mask)[0] for cost in cmdp.cost])
    _, greedy = plan(cmdp.transition, cmdp.reward, cmdp.action_mask)
    free = evaluate(cmdp.transition, greedy, cmdp.cost)
    if rhos is not None and binding:  # thresholds that are all above the free costs do not bind
        shared = -plan(cmdp.transition, -cmdp.cost.mean(axis=0), cmdp.action_mask)[0]
        reach = min(float(np.min(free - least)), float(free.mean() - shared))  # a bound by duality, without a program
        if reach <= rhos[-1] or (reach := _margin(cmdp, free, least)) <= rhos[-1]:
            raise Unreachable(reach)
    for _ in range(_PATHS if m > 1 else 1):
        path = _path(cmdp, rng.dirichlet(np.full(m, 3.0)))
        if rhos is None:
            shapes = [tightness * path[-1] + (1 - tightness) * path[0]]
        else:
            base = _aim(cmdp, path, rhos[0], least)
            base += rhos[0] - _margin(cmdp, base, least)
            shapes = [base + (rho - rhos[0]) for rho in rhos]
        pairs = [_accepted(cmdp, alpha, binding) for alpha in shapes]
        good = all(pairs) and (rhos is None or all(_close(pair, rho) for pair, rho in zip(pairs, rhos, strict=True)))
        if good:
            return [pair[0] for pair in pairs if pair]
    raise Unreachable(rhos[-1] if rhos else 0.0)


def _path(cmdp: CMDP, weights: np.ndarray) -> list[np.ndarray]:
    """The different costs `[M]` of the maximisers of r - s w.g, s from 0 to infinity."""
    burden = np.tensordot(weights, cmdp.cost, 1)
    path: list[np.ndarray] = []
    for s in _SCALES:
        payoff = -burden if np.isinf(s) else cmdp.reward - s * burden
        _, policy = plan(cmdp.transition, payoff, cmdp.action_mask)
        costs = evaluate(cmdp.transition, policy, cmdp.cost)
        if not path or np.abs(costs - path[-1]).max() > 1e-12:
            path.append(costs)
    return path


def _aim(cmdp: CMDP, path: list[np.ndarray], rho: float, least: np.ndarray) -> np.ndarray:
    """Thresholds on the path whose margin is about rho: bisection finds the segment, then a secant step."""
    low, high = len(path) - 1, 0
    margins = {k: _margin(cmdp, path[k], least) for k in (low, high)}
    if margins[high] <= rho:
        return path[high].copy()
    if margins[low] >= rho:
        return path[low].copy()
    while low - high > 1:
        middle = (low + high) // 2
        margins[middle] = _margin(cmdp, path[middle], least)
        low, high = (low, middle) if margins[middle] > rho else (middle, high)
    share = (rho - margins[low]) / (margins[high] - margins[low])
    return share * path[high] + (1 - share) * path[low]


def _margin(cmdp: CMDP, alpha: np.ndarray, least: np.ndarray) -> float:
    """rho of these thresholds; one constraint needs no linear program."""
    if len(alpha) == 1:
        return float(alpha[0] - least[0])
    model = Model(cmdp.transition, cmdp.reward, cmdp.cost, alpha, cmdp.action_mask, cmdp.name)
    return min(until_certified(Program(model).slater(), model), key=lambda attempt: attempt[0])[1]


def _accepted(cmdp: CMDP, alpha: np.ndarray, binding: bool) -> tuple[CMDP, Solution] | None:
    """The CMDP with these thresholds and its solution, if they are valid, some policy is strictly below all
    of them and, on request, all of them bind.
    """
    if not ((alpha >= 0) & (alpha <= cmdp.n_layers)).all():
        return None
    placed = replace(cmdp, threshold=alpha)
    solution = solve(placed)
    if solution.slater_margin < LEAST_MARGIN or (binding and solution.multipliers.min() < LEAST_MULTIPLIER):
        return None
    return placed, solution


def _close(pair: tuple[CMDP, Solution] | None, rho: float) -> bool:
    return pair is not None and abs(float(pair[1].slater_margin) - rho) <= MARGIN_ERROR
