"""The linear programs of learners that replan in every episode: HiGHS on the host, warm-started from the last basis.

Variables are occupancies q(x,a) of the real pairs, for a single model or a confidence set:
    max sum q r~   s.t.   sum_a q(x,a) = sum_{x',a'} z(x',a',x) (1 at x_0),   sum q g~_i <= alpha_i
    z(x,a,y) = lower(y|x,a) q(x,a) + spare(x,a) w(x,a,y),   sum_y w(x,a,y) = q(x,a),   0 <= w <= cap(y|x,a) q(x,a)
With spare = 1 - sum_y lower and cap = min(1, (upper - lower) / spare) this is lower sum_y z <= z <= upper sum_y z, but
with two entries per row instead of |X|, and no bound becomes small with the set (HiGHS drops entries below 1e-9,
here at the cost of that much probability). One model, P = lower: no w.

An LP usually has several optima, and the solution depends on the initial basis. So the basis is part of the learner's
state, and the solution is a function of the coefficients and that basis alone.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import highspy
import numpy as np

_STATUSES = np.array([highspy.HighsBasisStatus(i) for i in range(3)], object)  # at its lower bound, basic, at its upper
_INFINITY = highspy.kHighsInf
_REACHED = 1e-9  # states with less probability count as not reached: the solver's tolerance
_OPTIONS = {
    "output_flag": False,
    "threads": 1,
    "presolve": "off",  # it would throw the basis away
    "primal_feasibility_tolerance": 1e-9,
    "dual_feasibility_tolerance": 1e-9,
}


class Set(NamedTuple):
    """A confidence set in the form of the program; [L-1,S,A,S] but for `spare`, [L-1,S,A]."""

    lower: np.ndarray
    spare: np.ndarray  # 1 - sum_y lower
    cap: np.ndarray  # of the share of `spare` that one next state may have


Inputs = tuple[np.ndarray, np.ndarray, Set]  # reward [L,S,A], cost [M,L,S,A], the model or a set of them


class Basis(NamedTuple):
    """Which columns and rows are basic; none before the first LP. Sized for an instance without padding.

    All others have a single bound and are at it, so this determines the basis.
    """

    columns: np.ndarray  # bool
    rows: np.ndarray  # bool


class Plan(NamedTuple):
    """The solution of an LP."""

    policy: np.ndarray  # [L,S,A]
    multipliers: np.ndarray  # [M] of the constraints
    basis: Basis
    infeasible: bool  # no policy satisfies the constraints; `policy` minimises the sum of excesses
    value: float  # of the objective; if infeasible minus that sum


class Program:
    """The sparse structure of the program of one instance, whose coefficients change from episode to episode."""

    def __init__(self, mask: np.ndarray, n_constraints: int, with_set: bool) -> None:
        n_layers, n_states, _ = mask.shape
        real = np.asarray(mask.any(axis=2))
        self.pairs: tuple[np.ndarray, ...] = np.nonzero(mask)
        k, x, a = self.pairs
        n, m = len(k), n_constraints
        state = np.full((n_layers, n_states), -1)
        state[real] = np.arange(real.sum())
        n_flow = int(real.sum())
        inner = np.flatnonzero(k < n_layers - 1)
        source, y = np.nonzero(real[k[inner] + 1])  # a triple is an inner pair and a real next state
        pair = inner[source]
        self.inner: tuple[np.ndarray, ...] = k[inner], x[inner], a[inner]
        self.triples: tuple[np.ndarray, ...] = k[pair], x[pair], a[pair], y
        self.spare_of: np.ndarray = source  # position of each triple's pair among the inner pairs
        t = len(pair) if with_set else 0
        target, triple = state[k[pair] + 1, y], np.arange(t)
        costs, slack = n_flow, n_flow + m  # first rows of the kinds
        share, cap = slack, slack + (len(inner) if with_set else 0)
        pieces = [  # rows, columns; the entries follow in `_entries`
            (state[k, x], np.arange(n)),
            (target, pair),
            (np.repeat(costs + np.arange(m), n), np.tile(np.arange(n), m)),
            (costs + np.arange(m), n + t + np.arange(m)),
        ]
        if with_set:
            pieces += [
                (target, n + triple),
                (share + source, n + triple),
                (share + np.arange(len(inner)), inner),
                (cap + triple, n + triple),
                (cap + triple, pair),
            ]
        rows, columns = (np.concatenate(part) for part in zip(*pieces, strict=True))
        self.order: np.ndarray = np.lexsort((rows, columns))
        self.index: np.ndarray = rows[self.order].astype(np.int32)
        self.shape: tuple[int, int] = cap + t, n + t + m
        start = np.concatenate([[0], np.cumsum(np.bincount(columns, minlength=self.shape[1]))[:-1]])
        self.start: np.ndarray = start.astype(np.int32)
        self.n_flow: int = n_flow
        self.n_constraints: int = m
        self.with_set: bool = with_set
        self.mask: np.ndarray = mask
        self.row_lower: np.ndarray = np.zeros(self.shape[0])
        self.row_lower[costs:share] = self.row_lower[cap:] = -_INFINITY
        self.bound: np.ndarray = np.where(np.isinf(self.row_lower), 2, 0)
        self.row_upper: np.ndarray = np.zeros(self.shape[0])
        self.row_lower[state[0, 0]] = self.row_upper[state[0, 0]] = 1.0
        self.fixed: tuple[np.ndarray, ...] = np.ones(n), -np.ones(m), np.ones(t), -np.ones(len(inner)), np.ones(t)
        self.integrality: np.ndarray = np.zeros(self.shape[1], np.int32)
        self.col_lower: np.ndarray = np.zeros(self.shape[1])

    def entries(self, cost: np.ndarray, within: Set) -> np.ndarray:
        """The matrix, column by column; cost [M,L,S,A]."""
        ones, slack, shares, pairs, caps = self.fixed
        parts = [ones, -within.lower[self.triples], cost[:, *self.pairs].ravel(), slack]
        if self.with_set:
            parts += [-within.spare[self.inner][self.spare_of], shares, pairs, caps, -within.cap[self.triples]]
        return np.concatenate(parts)[self.order]

    def solve(
        self,
        reward: np.ndarray,
        cost: np.ndarray,
        within: Set,
        threshold: np.ndarray,
        basis: Basis,
        elsewhere: np.ndarray | None = None,
    ) -> Plan:
        """The best policy; reward [L,S,A], cost [M,L,S,A], threshold [M].

        If there is none, or the solver fails, the policy with the least sum of excesses, or `elsewhere` [L,S,A]
        (without value and multipliers) if given. `elsewhere` is also played in states that the plan does not reach.
        """
        matrix = self.entries(cost, within)
        objective = np.zeros(self.shape[1])
        objective[: len(self.pairs[0])] = -reward[self.pairs]
        solver = self._run(matrix, objective, threshold, 0.0, basis)
        infeasible = solver.getModelStatus() != highspy.HighsModelStatus.kOptimal
        if infeasible and elsewhere is not None:
            return Plan(elsewhere, np.zeros(self.n_constraints), basis, infeasible=True, value=np.nan)
        if infeasible:  # pay for the excesses alone
            objective[:] = 0.0
            objective[self.shape[1] - self.n_constraints :] = 1.0
            solver = self._run(matrix, objective, threshold, _INFINITY, basis)
            if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
                raise RuntimeError(
                    f"HiGHS stopped at an LP of {self.shape} with status {solver.getModelStatus()}; please report it."
                )
        solution, (_, basic) = solver.getSolution(), solver.getBasicVariables()  # pyright: ignore
        duals = np.array(solution.row_dual[self.n_flow : self.n_flow + self.n_constraints])
        return Plan(
            policy=self._policy(np.array(solution.col_value), elsewhere),
            multipliers=np.maximum(-duals, 0.0),
            basis=Basis(_at(basic[basic >= 0], basis.columns), _at(-1 - basic[basic < 0], basis.rows)),
            infeasible=infeasible,
            value=-solver.getObjectiveValue(),
        )

    def _run(
        self, matrix: np.ndarray, objective: np.ndarray, threshold: np.ndarray, excess: float, basis: Basis
    ) -> highspy.Highs:
        """Solve from the basis with the given allowed excess; without a basis if that fails."""
        n_rows, n_columns = self.shape
        row_upper, col_upper = self.row_upper.copy(), np.full(n_columns, _INFINITY)
        row_upper[self.n_flow : self.n_flow + self.n_constraints] = threshold
        col_upper[n_columns - self.n_constraints :] = excess
        clear = highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kInfeasible
        for warm in (True, False):
            solver = highspy.Highs()  # a new solver, so that earlier programs cannot affect the solution
            for name, value in (_OPTIONS if warm else _OPTIONS | {"presolve": "on"}).items():
                solver.setOptionValue(name, value)
            solver.passModel(
                n_columns, n_rows, len(matrix), 1, 1, 0.0, objective, self.col_lower, col_upper, self.row_lower,
                row_upper, self.start, self.index, matrix, self.integrality,
            )  # fmt: skip
            if warm and basis.columns.any():
                start = highspy.HighsBasis()
                start.col_status = _STATUSES[basis.columns[:n_columns].astype(int)].tolist()
                start.row_status = _STATUSES[np.where(basis.rows[:n_rows], 1, self.bound)].tolist()
                start.valid, start.alien = True, False
                solver.setBasis(start)
            solver.run()
            if solver.getModelStatus() in clear:
                break
        return solver

    def _policy(self, columns: np.ndarray, elsewhere: np.ndarray | None) -> np.ndarray:
        """pi(a|x) = q(x,a) / sum_a q(x,a), [L,S,A]; uniform, or `elsewhere`, in states that the plan does not reach."""
        q = np.zeros(self.mask.shape)
        q[self.pairs] = np.maximum(columns[: len(self.pairs[0])], 0.0)
        total = q.sum(axis=2, keepdims=True)
        uniform: np.ndarray = self.mask / np.maximum(self.mask.sum(axis=2, keepdims=True), 1)
        other = uniform if elsewhere is None else elsewhere
        return np.where(total > _REACHED, q / np.maximum(total, _REACHED), other)


@lru_cache(maxsize=256)
def _program(mask: bytes, shape: tuple[int, int, int], n_constraints: int, with_set: bool) -> Program:
    return Program(np.frombuffer(mask, bool).reshape(shape), n_constraints, with_set)


def program(mask: np.ndarray, n_constraints: int, with_set: bool) -> Program:
    """The structure for an action mask [L,S,A], cached."""
    return _program(mask.tobytes(), mask.shape, n_constraints, with_set)


def no_basis(shape: tuple[int, int, int], n_constraints: int, with_set: bool) -> Basis:
    """An empty basis, large enough for any instance of shape [L,S,A]."""
    n_rows, n_columns = program(np.ones(shape, bool), n_constraints, with_set).shape
    return Basis(np.zeros(n_columns, bool), np.zeros(n_rows, bool))


def _at(places: np.ndarray, like: np.ndarray) -> np.ndarray:
    marked = np.zeros_like(like)
    marked[places] = True
    return marked
