"""The exact optimum of a known CMDP: OPT, multipliers, Slater margin, each with its certificate.

Evaluation, not learning: linear programs over occupancy measures on the host in float64 (Section 3.2), checked by
plain backward recursions that do not rely on the solver. Needs NumPy and SciPy only: worker processes import this
file and should not wait for jax.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

if TYPE_CHECKING:
    from cpdpo_jax.types import CMDP

TOLERANCE = 1e-9  # certificates aim below it; a Slater margin above its negative counts as 0
_GOAL = 1e-10  # the first attempt certified to this is taken, else the best one
_SOLVER = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}  # the tightest HiGHS takes
# HiGHS drops matrix entries below 1e-9, so that rare transitions would vanish, and its tolerances are absolute: rows
# and variables are scaled up by powers of 2. A threshold at the very minimum may need a slack of the order of rounding.
_ATTEMPTS = (  # rows, variables, slack
    (2.0**16, 2.0**10, 0.0),
    (2.0**20, 1.0, 0.0),
    (2.0**20, 2.0**10, 0.0),
    (2.0**14, 2.0**6, 0.0),
    (2.0**10, 1.0, 0.0),
    (2.0**14, 2.0**6, 1e-14),
    (2.0**10, 1.0, 1e-13),
    (1.0, 1.0, 1e-10),
)
_START_UP = 1.5  # seconds that worker processes take to start; they must save more


class InfeasibleError(ValueError):
    """No policy satisfies all constraints; the message says by how much each is violated at best."""


class Solution(NamedTuple):
    """The optimum of one CMDP, or of a batch (every field then has the batch axes *B last)."""

    value: np.ndarray  # [*B] OPT = V(r) of `policy`, by policy evaluation
    policy: np.ndarray  # [L, S, A, *B] an optimal policy; 0 at padding
    multipliers: np.ndarray  # [M, *B] optimal Lagrange multipliers, >= 0
    slater_margin: np.ndarray  # [*B] rho = max_pi min_i alpha_i - V(g_i)
    slater_policy: np.ndarray  # [L, S, A, *B] a policy that attains rho
    unconstrained_value: np.ndarray  # [*B] max_pi V(r) without constraints
    unconstrained_policy: np.ndarray  # [L, S, A, *B] a deterministic policy that attains it
    gap: np.ndarray  # [*B] certificate: dual value of `multipliers` minus `value`
    violation: np.ndarray  # [*B] certificate: max_i [V(g_i) - alpha_i]^+ of `policy`


class _Model(NamedTuple):
    """What `solve` needs of one CMDP; plain arrays, so that it can be sent to a worker."""

    transition: np.ndarray  # [L-1, S, A, S]
    reward: np.ndarray  # [L, S, A]
    cost: np.ndarray  # [M, L, S, A]
    threshold: np.ndarray  # [M]
    action_mask: np.ndarray  # [L, S, A]
    name: str


def solve(cmdp: CMDP, *, processes: int | None = None) -> Solution:
    """Solve OPT = max_pi V(r) s.t. V(g_i) <= alpha_i for all i (Problem 1 of Section 3.2), and certify the answer.

    With q(x,a) the probability that an episode visits (x,a), OPT is the linear program

        max_{q >= 0} sum q r  s.t.  sum_a q(x_0,a) = 1, sum_a q(x',a) = sum_{x,a} P(x'|x,a) q(x,a), sum q g_i <= alpha_i

    and rho a second one, max t s.t. sum q g_i + t <= alpha_i. The certificates do not trust the solver:

        gap       = max_pi V(r - sum_i lambda_i g_i) + sum_i lambda_i alpha_i - V^policy(r)   (backward induction)
        violation = max_i [V^policy(g_i) - alpha_i]^+                                         (policy evaluation)

    so that OPT lies within [value, value + gap] if the violation is 0. Both are below 1e-9 unless the multipliers are
    so large (1e7 and more: a threshold at the minimum, transitions rarer than 1e-7) that rounding decides; then a
    `RuntimeWarning` says so.

    Args:
        cmdp: one CMDP, or a batch with trailing axes *B.
        processes: worker processes for a batch; None uses the available cores when the batch is large enough to pay.

    Returns:
        A `Solution`, for a batch with the axes *B last.

    Raises:
        InfeasibleError: no policy satisfies all constraints (of an instance, which is named).
    """
    models = _models(cmdp)
    solutions = _solve_all(models, processes)
    for model, one in zip(models, solutions, strict=True):
        error = max(abs(one.gap), one.violation)
        if error > TOLERANCE:
            warnings.warn(
                f"{model.name} is solved to {error:.2g} only (gap {one.gap:.2g}, violation {one.violation:.2g}): with "
                f"multipliers of {one.multipliers.max():.2g} rounding decides its optimum; raise its thresholds.",
                RuntimeWarning,
                stacklevel=2,
            )
    if not cmdp.batch_shape:
        return solutions[0]
    columns = (np.stack(column, axis=-1) for column in zip(*solutions, strict=True))
    return Solution(*(column.reshape(column.shape[:-1] + cmdp.batch_shape) for column in columns))


def _solve_all(models: Sequence[_Model], processes: int | None) -> list[Solution]:
    """Solve in this process as long as workers could not be ready earlier, the rest in parallel."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    solutions = []
    if processes is None:
        start = time.perf_counter()
        for model in models:
            left = (time.perf_counter() - start) / max(1, len(solutions)) * (len(models) - len(solutions))
            if left * (cores - 1) / cores > _START_UP:
                break
            solutions.append(_solve_one(model))
    rest = models[len(solutions) :]
    workers = min(len(rest), cores if processes is None else processes)
    return solutions + (_solve_parallel(rest, workers) if workers > 1 else [_solve_one(model) for model in rest])


def _models(cmdp: CMDP) -> list[_Model]:
    """The instances of a CMDP or batch, in C order of the batch axes."""
    axes, n = len(cmdp.batch_shape), int(np.prod(cmdp.batch_shape))
    columns = []
    for field in _Model._fields[:-1]:
        leaf = np.asarray(getattr(cmdp, field))
        lead = leaf.shape[: leaf.ndim - axes]
        columns.append(np.broadcast_to(leaf, lead + cmdp.batch_shape).reshape(*lead, n))
    names = cmdp.names if len(cmdp.names) == n else cmdp.names[:1] * n
    names = names if n == 1 else [f"{name} (instance {i})" for i, name in enumerate(names)]
    return [_Model(*(np.ascontiguousarray(c[..., i]) for c in columns), name=names[i]) for i in range(n)]


def _solve_one(model: _Model) -> Solution:
    """Solve one instance in this process."""
    program = _Program(model)
    _, margin, slater_policy = min(_until_certified(program.slater(), model), key=lambda found: found[0])
    if margin < -TOLERANCE:
        raise InfeasibleError(_infeasible(model, margin))
    attempts = program.optimum(max(0.0, -margin))
    _, value, policy, multipliers, gap, violation = min(_until_certified(attempts, model), key=lambda found: found[0])
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


def _until_certified(attempts: Iterator[tuple], model: _Model) -> list[tuple]:
    """The attempts, each led by its error, up to the first that is certified."""
    found = []
    for attempt in attempts:
        found.append(attempt)
        if attempt[0] <= _GOAL:
            break
    if not found:
        raise RuntimeError(f"HiGHS solves no form of {model.name}; please report the instance.")
    return found


class _Program:
    """The occupancy polytope of an instance, over its real pairs only, and the linear programs on it."""

    def __init__(self, model: _Model):
        self.model = model
        mask = model.action_mask
        k, x, a = self.pairs = np.nonzero(mask)  # one variable each
        row = np.full(mask.shape[:2], -1)
        real = mask.any(axis=2)
        row[real] = np.arange(real.sum())  # one flow equation for each real state
        n = len(k)
        inner = np.flatnonzero(k < mask.shape[0] - 1)
        p = model.transition[k[inner], x[inner], a[inner]]  # [pairs with a next layer, S]
        source, target = np.nonzero(p)
        rows = np.concatenate([row[k, x], row[k[inner][source] + 1, target]])
        columns = np.concatenate([np.arange(n), inner[source]])
        entries = np.concatenate([np.ones(n), -p[source, target]])
        self.flow = sparse.csr_array((entries, (rows, columns)), shape=(int(real.sum()), n))
        self.start = np.zeros(int(real.sum()))
        self.start[row[0, 0]] = 1.0
        self.cost = model.cost[:, k, x, a]  # [M, n]

    def optimum(self, shortfall: float) -> Iterator[tuple]:
        """Attempts at OPT: error, value, policy `[L, S, A]`, multipliers `[M]`, gap, violation.

        Where an attempt has slack, it gets the shortfall [-rho]^+ on top.
        """
        model = self.model
        objective = -model.reward[self.pairs]
        for q, multipliers in self._attempts(objective, self.cost, self.flow, (0, None), shortfall):
            policy = self.policy(q, lagrangian(model, multipliers))
            value, *costs = evaluate(model.transition, policy, np.concatenate([model.reward[None], model.cost]))
            dual, _ = plan(model.transition, lagrangian(model, multipliers), model.action_mask)
            gap = dual + float(multipliers @ model.threshold) - value
            violation = max(0.0, float(np.max(np.array(costs) - model.threshold)))
            yield max(abs(gap), violation), value, policy, multipliers, gap, violation

    def slater(self) -> Iterator[tuple]:
        """Attempts at rho: error (by the dual bound min_w max_pi w.(alpha - V(g)), w a distribution), rho, policy."""
        model = self.model
        m, n = self.cost.shape
        objective = np.append(np.zeros(n), -1.0)
        upper = np.column_stack([self.cost, np.ones(m)])
        flow = sparse.hstack([self.flow, sparse.csr_array((len(self.start), 1))], format="csr")
        bounds = np.column_stack([np.append(np.zeros(n), -np.inf), np.full(n + 1, np.inf)])
        for q, weights in self._attempts(objective, upper, flow, bounds):
            weights = weights / weights.sum() if weights.sum() > 0 else np.full(m, 1 / m)
            payoff = -np.tensordot(weights, model.cost, 1)
            policy = self.policy(q[:-1], payoff)
            margin = float(np.min(model.threshold - evaluate(model.transition, policy, model.cost)))
            bound = plan(model.transition, payoff, model.action_mask)[0] + float(weights @ model.threshold)
            yield bound - margin, margin, policy

    def _attempts(
        self, objective: np.ndarray, upper: np.ndarray, flow: Any, bounds: Any, shortfall: float = 0.0
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The solver's answers, variables and multipliers `[M]`, for each scaling that it can solve."""
        for rows, variables, slack in _ATTEMPTS:
            b_ub = rows * variables * (self.model.threshold + (slack + shortfall if slack else 0.0))
            b_eq = rows * variables * self.start
            options = {**_SOLVER, "maxiter": 1000 + 100 * sum(flow.shape)}
            result = linprog(objective, rows * upper, b_ub, rows * flow, b_eq, bounds, method="highs-ds", options=options)
            if result.x is not None and result.ineqlin.marginals is not None:
                yield result.x / variables, np.maximum(0.0, -rows * result.ineqlin.marginals)

    def policy(self, occupancy: np.ndarray, payoff: np.ndarray) -> np.ndarray:
        """pi(a|x) = q(x,a) / sum_a q(x,a); where no episode comes, the best action for the payoff."""
        q = np.zeros(self.model.action_mask.shape)
        q[self.pairs] = np.maximum(0.0, occupancy)
        total = q.sum(axis=2, keepdims=True)
        _, greedy = plan(self.model.transition, payoff, self.model.action_mask)
        visited = total > 1e-13
        return np.where(visited, q / np.where(visited, total, 1.0), greedy)


def lagrangian(model: _Model, multipliers: np.ndarray) -> np.ndarray:
    """r - sum_i lambda_i g_i, `[L, S, A]` (Section 3.2, without the constant)."""
    return model.reward - np.tensordot(multipliers, model.cost, 1)


def evaluate(transition: np.ndarray, policy: np.ndarray, payoff: np.ndarray) -> np.ndarray:
    """V^pi(x_0) of K payoffs, `[K, L, S, A]` -> `[K]`: V_k(x) = sum_a pi(a|x) (v(x,a) + P(.|x,a) V_{k+1})."""
    value = (policy[-1] * payoff[:, -1]).sum(axis=-1)
    for k in reversed(range(len(transition))):
        value = (policy[k] * (payoff[:, k] + np.einsum("xay,cy->cxa", transition[k], value))).sum(axis=-1)
    return value[:, 0]


def plan(transition: np.ndarray, payoff: np.ndarray, mask: np.ndarray) -> tuple[float, np.ndarray]:
    """max_pi V^pi(payoff) at x_0 and a deterministic maximiser `[L, S, A]`, by backward induction."""
    policy = np.zeros(payoff.shape)
    value = np.zeros(payoff.shape[1])
    for k in reversed(range(len(payoff))):
        future = transition[k] @ value if k < len(transition) else 0.0
        q = np.where(mask[k], payoff[k] + future, -np.inf)
        real = mask[k].any(axis=1)
        policy[k, real, q[real].argmax(axis=1)] = 1.0
        value = np.where(real, q.max(axis=1), 0.0)
    return float(value[0]), policy


def _infeasible(model: _Model, margin: float) -> str:
    """The sentence of an `InfeasibleError`: each constraint at its own best, and all together."""
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


def _solve_parallel(models: Sequence[_Model], workers: int) -> list[Solution]:
    """Solve in child processes that run this module: no `__main__` guard, no fork of a process that runs jax."""
    root = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", "from cpdpo_jax import oracle; oracle._work()"]
    children: list[subprocess.Popen] = []
    solutions: list[Solution | None] = [None] * len(models)
    try:
        for _ in range(workers):  # in sessions of their own: an interrupt reaches this process, which ends them
            pipe = subprocess.PIPE
            children.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, start_new_session=True))
        for i, child in enumerate(children):
            assert child.stdin is not None
            pickle.dump([tuple(model) for model in models[i::workers]], child.stdin)
            child.stdin.close()
        for i, child in enumerate(children):
            assert child.stdout is not None
            try:
                kind, answer = pickle.load(child.stdout)
            except EOFError:
                raise RuntimeError(
                    f"a worker of solve ended with code {child.wait()}; see its message above."
                ) from None
            if kind != "solved":
                raise InfeasibleError(answer) if kind == "infeasible" else RuntimeError(answer)
            solutions[i::workers] = [Solution(*fields) for fields in answer]
    finally:
        for child in children:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()
    return [solution for solution in solutions if solution is not None]


def _work() -> None:
    """The body of a worker process: models from stdin, solutions to stdout."""
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # whatever a library prints must not end up among the answers
        models = [_Model(*fields) for fields in pickle.load(sys.stdin.buffer)]
        try:
            answer = ("solved", [tuple(_solve_one(model)) for model in models])
        except InfeasibleError as error:
            answer = ("infeasible", str(error))
        except RuntimeError as error:
            answer = ("failed", str(error))
        pickle.dump(answer, answers)
