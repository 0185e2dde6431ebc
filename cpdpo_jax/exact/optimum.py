"""The exact optimum of a known CMDP: OPT, multipliers, Slater margin, each with its certificate.

Linear programs over occupancy measures on the host in float64 (Section 3.2), certified by backward recursions that are
independent of the solver.
"""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cpdpo_jax.common import machine
from cpdpo_jax.exact.lp import Model, Program, until_certified
from cpdpo_jax.exact.lp import evaluate as evaluate
from cpdpo_jax.exact.lp import plan as plan

if TYPE_CHECKING:
    from cpdpo_jax.common.types import CMDP

TOLERANCE = 1e-9  # goal of the certificates; a Slater margin above -TOLERANCE counts as 0


class InfeasibleError(ValueError):
    """No policy satisfies all constraints; the message gives the least violation of each."""


class Solution(NamedTuple):
    """The optimum of one CMDP, or of a batch (every field then has the batch axes *B last).

    All values are in the learner's units, in which rewards and costs lie in [0, 1]; `original_units` in `cp.envs`
    converts them, and `cmdp.describe()` prints them in the units of the source.
    """

    value: np.ndarray  # [*B] OPT = V(r) of `policy`, by policy evaluation
    policy: np.ndarray  # [L, S, A, *B] an optimal policy; 0 at padding
    multipliers: np.ndarray  # [M, *B] optimal Lagrange multipliers, >= 0
    slater_margin: np.ndarray  # [*B] rho = max_pi min_i alpha_i - V(g_i)
    slater_policy: np.ndarray  # [L, S, A, *B] a policy that attains rho
    unconstrained_value: np.ndarray  # [*B] max_pi V(r) without constraints
    unconstrained_policy: np.ndarray  # [L, S, A, *B] a deterministic policy that attains it
    gap: np.ndarray  # [*B] certificate: dual value of `multipliers` minus `value`
    violation: np.ndarray  # [*B] certificate: max_i [V(g_i) - alpha_i]^+ of `policy`

    def __repr__(self) -> str:
        """The numbers, without the policies."""
        names = ("value", "slater_margin", "multipliers", "unconstrained_value", "gap", "violation")
        values = (np.array2string(np.asarray(getattr(self, name)), precision=6, threshold=8) for name in names)
        shown = ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
        return f"Solution({shown}; learner's units, policies not shown)"


def solve(cmdp: CMDP, *, processes: int | None = None) -> Solution:
    """Solve OPT = max_pi V(r) s.t. V(g_i) <= alpha_i for all i (Problem 1 of Section 3.2), and certify the answer.

    With q(x,a) the probability that an episode visits (x,a), OPT is the linear program

        max_{q >= 0} sum q r  s.t.  sum_a q(x_0,a) = 1, sum_a q(x',a) = sum_{x,a} P(x'|x,a) q(x,a), sum q g_i <= alpha_i

    and rho is a second program, max t s.t. sum q g_i + t <= alpha_i. The certificates are independent of the solver:

        gap       = max_pi V(r - sum_i lambda_i g_i) + sum_i lambda_i alpha_i - V^policy(r)   (backward induction)
        violation = max_i [V^policy(g_i) - alpha_i]^+                                         (policy evaluation)

    so OPT lies in [value, value + gap] if the violation is 0. Both are below 1e-9 unless the multipliers are so large
    (at least 1e7: a threshold at the minimum, transitions rarer than 1e-7) that rounding error dominates; a
    `RuntimeWarning` reports this.

    Args:
        cmdp: one CMDP, or a batch with trailing axes *B.
        processes: deprecated, without effect; the instances of a batch are solved in one thread per core.

    Returns:
        A `Solution` in the learner's units (rewards and costs in [0, 1]), for a batch with the axes *B last.

    Raises:
        InfeasibleError: no policy satisfies all constraints; names the instance.
    """
    if not hasattr(cmdp, "batch_shape"):
        raise ValueError(f"cmdp is a {type(cmdp).__name__}; give a CMDP, such as cp.envs.make('factored').")
    if processes is not None:
        warnings.warn("solve has no processes any more; leave the argument out.", DeprecationWarning, stacklevel=2)
    models = _models(cmdp)
    with ThreadPoolExecutor(machine.cores()) as pool:  # HiGHS releases Python's lock
        solutions = list(pool.map(_solve_one, models))
    for model, solution in zip(models, solutions, strict=True):
        error = max(abs(solution.gap), solution.violation)
        if error > TOLERANCE:
            warnings.warn(
                f"{model.name} is solved only to {error:.2g} (gap {solution.gap:.2g}, violation "
                f"{solution.violation:.2g}): with multipliers of {solution.multipliers.max():.2g}, rounding errors "
                "dominate; raise its thresholds.",
                RuntimeWarning,
                stacklevel=2,
            )
    if not cmdp.batch_shape:
        return solutions[0]
    columns = (np.stack(column, axis=-1) for column in zip(*solutions, strict=True))
    return Solution(*(column.reshape(column.shape[:-1] + cmdp.batch_shape) for column in columns))


def _models(cmdp: CMDP) -> list[Model]:
    """The instances of a CMDP or batch, in C order of the batch axes."""
    axes, n = len(cmdp.batch_shape), int(np.prod(cmdp.batch_shape))
    columns = []
    for field in Model._fields[:-1]:
        leaf = np.asarray(getattr(cmdp, field), bool if field == "action_mask" else np.float64)
        lead = leaf.shape[: leaf.ndim - axes]
        columns.append(np.broadcast_to(leaf, lead + cmdp.batch_shape).reshape(*lead, n))
    names = cmdp.names if len(cmdp.names) == n else cmdp.names[:1] * n
    names = names if n == 1 else [f"{name} (instance {i})" for i, name in enumerate(names)]
    return [Model(*(np.ascontiguousarray(c[..., i]) for c in columns), name=names[i]) for i in range(n)]


def _solve_one(model: Model) -> Solution:
    """Solve one instance."""
    program = Program(model)
    _, margin, slater_policy = min(until_certified(program.slater(), model), key=lambda attempt: attempt[0])
    if margin < -TOLERANCE:
        raise InfeasibleError(_infeasible(model, margin))
    attempts = program.optimum(max(0.0, -margin))
    _, value, policy, multipliers, gap, violation = min(
        until_certified(attempts, model), key=lambda attempt: attempt[0]
    )
    unconstrained_value, unconstrained_policy = plan(model.transition, model.reward, model.action_mask)
    return Solution(
        value=np.asarray(value),
        policy=policy,
        multipliers=multipliers,
        slater_margin=np.asarray(max(0.0, margin)),
        slater_policy=slater_policy,
        unconstrained_value=np.asarray(unconstrained_value),
        unconstrained_policy=unconstrained_policy,
        gap=np.asarray(gap),
        violation=np.asarray(violation),
    )


def slater_margin(transition: np.ndarray, cost: np.ndarray, threshold: np.ndarray, action_mask: np.ndarray) -> float:
    """rho = max_pi min_i alpha_i - V(g_i) of plain arrays, negative if no policy is feasible (Section 3.2).

    transition [L-1,S,A,S], cost [M,L,S,A], threshold [M], action_mask [L,S,A].
    """
    model = Model(transition, np.zeros(cost.shape[1:]), cost, threshold, action_mask, name="the empirical CMDP")
    return min(until_certified(Program(model).slater(), model), key=lambda attempt: attempt[0])[1]


def least_multiplier_norm(cmdp: CMDP, solution: Solution) -> np.ndarray:
    """Lambda = min { ||lambda||_inf : lambda an optimal dual solution } of each instance of a batch, [instances].

    The solver's multipliers need not have the least norm: without a Slater policy the optimal set is unbounded.
    """
    models, values = _models(cmdp), np.ravel(solution.value)
    return np.array([Program(model).least_multiplier_norm(float(v)) for model, v in zip(models, values, strict=True)])


def _infeasible(model: Model, margin: float) -> str:
    """The message of an `InfeasibleError`: the best value of each constraint alone, and of all together."""
    least = [-plan(model.transition, -cost, model.action_mask)[0] for cost in model.cost]
    parts = [
        f"V(cost[{i}]) is at least {value:.6g} against threshold[{i}] = {alpha:.6g}"
        + (f" (violated by {value - alpha:.3g} at best)" if value > alpha else "")
        for i, (value, alpha) in enumerate(zip(least, model.threshold, strict=True))
    ]
    return (
        f"{model.name} is infeasible: {'; '.join(parts)}; whatever the policy, some constraint is violated by at least "
        f"{-margin:.6g}, so raise the thresholds by that much."
    )
