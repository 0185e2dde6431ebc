"""The projection, in relative entropy, onto the occupancy measures of a confidence set: used by UOB-REPS.

Over triples q(k,x,a,y), w > 0 given, lo <= hi the box of the set:
    min over q of sum q ln(q / w)   s.t.   every layer sums to 1,  sum_{a,y} q(k,x,a,y) = sum_{x',a'} q(k-1,x',a',x),
                                           lo(y|x,a) sum_y q <= q(x,a,y) <= hi(y|x,a) sum_y q,
                                           sum q(k,x,a,y) c_i(k,x,a) <= alpha_i for every cost row i, if there are any
Write q(x,a,y) = n(x,a) p(y|x,a). With a price beta(x) for the flow through each state, and mu_i >= 0 for each cost row,
the problem decomposes:
    for a pair     h(x,a) = max over p in the box of sum_y p (beta(y) + ln w(y) - ln p) - beta(x) - sum_i mu_i c_i(x,a),
                   attained at p = clip(w exp(beta - nu), lo, hi) with nu so that p sums to 1
    for a layer    n(x,a) = exp(h(x,a)) / Z_k,   Z_k = sum exp(h)
    for the prices minimise F(beta, mu) = sum_k ln Z_k + sum_i mu_i alpha_i, convex, whose gradient is
                   (inflow - outflow of every state, alpha_i - cost i)
so that F has one variable per state and cost row, instead of one per row of the box. Projected Newton steps
(Bertsekas 1982), halved until F falls; F is once differentiable, and twice except where p reaches an end of the box.
The rows have no solution if some mu >= 0 proves it: min over the set of sum_i mu_i c_i.q > sum_i mu_i alpha_i.

NumPy in float64, no lane axis. Padded next states have hi = 0. In the last layer y is x_L alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cpdpo_jax.learners.occupancy_measures import least_cost

STEPS = 100  # of Newton's method, at most; usually a handful
PRECISION = 1e-11  # of the flow, at which to stop
LONGEST = 100.0  # change of a price in one step: prices are exponents, and diverge if there is no solution
SUSPICIOUS = 30.0  # above this price of a cost row, test whether there is a solution
_TINY = 1e-300  # the least weight: an occupancy that underflowed would remain 0


def conditional(log_weight: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
    """p = clip(exp(z - nu), lo, hi) with sum_y p = 1, exactly: [...,S] three times -> [...,S].

    sum_y clip(exp(z - nu)) decreases in nu and has a bend where an entry reaches an end of its box. Between the two
    bends around the solution the set of free entries is known, and nu has a closed form.
    """
    with np.errstate(divide="ignore"):
        bends = np.concatenate([log_weight - np.log(lo), log_weight - np.log(hi)], axis=-1)
    open_ended = hi > lo
    bends = np.where(np.concatenate([open_ended, open_ended], axis=-1), bends, np.inf)  # where lo = hi: no bend
    bends = np.sort(bends, axis=-1)  # [...,2S], +inf for lo = 0
    finite = np.isfinite(bends)
    at = np.where(finite, bends, 0.0)[..., None]
    total = np.clip(np.exp(np.minimum(log_weight[..., None, :] - at, 700.0)), lo[..., None, :], hi[..., None, :])
    above = (finite & (total.sum(axis=-1) >= 1.0)).sum(axis=-1, keepdims=True)  # bends at which p is still too large
    left = np.take_along_axis(bends, np.maximum(above - 1, 0), axis=-1)
    right = np.take_along_axis(bends, np.minimum(above, bends.shape[-1] - 1), axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        middle = np.where(np.isfinite(right), (left + right) / 2, left + 1.0)
        middle = np.where(np.isfinite(left), middle, 0.0)
        raw = np.exp(np.minimum(log_weight - middle, 700.0))
        free = open_ended & (raw > lo) & (raw < hi)
        fixed = np.where(free, 0.0, np.clip(raw, lo, hi)).sum(axis=-1, keepdims=True)
        most = np.max(np.where(free, log_weight, -np.inf), axis=-1, keepdims=True)
        most = np.where(np.isfinite(most), most, 0.0)
        share = np.where(free, np.exp(np.minimum(log_weight - most, 0.0)), 0.0)  # a fixed entry may lie far above
        spread = share / np.maximum(share.sum(axis=-1, keepdims=True), _TINY) * (1.0 - fixed)
    return np.clip(np.where(free, spread, np.clip(raw, lo, hi)), lo, hi)


class Projected(NamedTuple):
    """The minimiser and its error."""

    pairs: np.ndarray  # [L,S,A] n(x,a)
    conditional: np.ndarray  # [L-1,S,A,S] p(y|x,a)
    multipliers: np.ndarray  # [M] mu
    residual: float  # the largest remaining error in the flow, the cost rows and mu's complementarity; inf: no solution


class Projection:
    """Input: log weights of the triples [L-1,S,A,S] and of the last layer's pairs [S,A], box, mask [L,S,A],
    cost rows [M,L,S,A] with their thresholds [M].
    """

    def __init__(
        self,
        log_weight: np.ndarray,
        last: np.ndarray,
        lo: np.ndarray,
        hi: np.ndarray,
        mask: np.ndarray,
        cost: np.ndarray | None = None,
        threshold: np.ndarray | None = None,
    ):
        self.log_weight: np.ndarray = log_weight
        self.last: np.ndarray = last
        self.lo: np.ndarray = lo
        self.hi: np.ndarray = hi
        self.mask: np.ndarray = mask
        self.cost: np.ndarray = np.zeros((0, *mask.shape)) if cost is None else np.asarray(cost * mask)
        self.threshold: np.ndarray = np.zeros(0) if threshold is None else threshold
        real: np.ndarray = np.asarray(mask.any(axis=2))
        real[0, 0] = False  # x_0: its flow is that of its layer
        self.states: np.ndarray = np.flatnonzero(real)  # positions of the states' prices; those of the cost rows follow
        self.signed: np.ndarray = np.arange(len(self.states) + len(self.cost)) >= len(self.states)

    def evaluate(self, prices: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        """F, its gradient, n(x,a) [L,S,A] and p(y|x,a) [L-1,S,A,S]; the prices are (beta of the states, mu)."""
        beta, mu = np.zeros(self.mask.shape[:2]), prices[self.signed]
        beta.flat[self.states] = prices[~self.signed]
        z = self.log_weight + beta[1:, None, None, :]
        p = conditional(z, self.lo, self.hi)
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(p > 0, p * (z - np.log(p)), 0.0)
        h = np.concatenate([terms.sum(axis=3), self.last[None]]) - beta[:, :, None] - np.tensordot(mu, self.cost, 1)
        h = np.where(self.mask, h, -np.inf)
        most = h.max(axis=(1, 2), keepdims=True)
        n = np.exp(h - most)
        total = n.sum(axis=(1, 2), keepdims=True)
        n /= total
        flow = -n.sum(axis=2)
        flow[1:] += np.einsum("kxa,kxay->ky", n[:-1], p)
        slack = self.threshold - (self.cost * n).sum(axis=(1, 2, 3))
        value = float((most + np.log(total)).sum() + mu @ self.threshold)
        return value, np.append(flow.ravel()[self.states], slack), n, p

    def hessian(self, n: np.ndarray, p: np.ndarray) -> np.ndarray:
        """The Hessian of F in the prices: the covariance of p - e_x and of the costs, plus the change of p."""
        n_layers, n_states = n.shape[:2]
        full = np.zeros((n_layers, n_states, n_layers, n_states))
        free = np.where((p > self.lo) & (p < self.hi), p, 0.0)
        sums = np.maximum(free.sum(axis=3), _TINY)
        for k in range(n_layers):
            outflow = n[k].sum(axis=1)
            full[k, :, k, :] += np.diag(outflow) - np.outer(outflow, outflow)
            if k + 1 == n_layers:
                continue
            inflow = np.einsum("xa,xay->y", n[k], p[k])
            joint = np.einsum("xa,xay->xy", n[k], p[k])
            mixed = np.outer(outflow, inflow) - joint
            full[k, :, k + 1, :] += mixed
            full[k + 1, :, k, :] += mixed.T
            block = np.einsum("xa,xay,xaz->yz", n[k], p[k], p[k]) - np.outer(inflow, inflow)
            block += np.diag(np.einsum("xa,xay->y", n[k], free[k]))
            block -= np.einsum("xa,xay,xaz->yz", n[k] / sums[k], free[k], free[k])
            full[k + 1, :, k + 1, :] += block
        changes = -n * (self.cost - (n * self.cost).sum(axis=(2, 3), keepdims=True))  # [M,L,S,A] of n by mu
        mixed = -changes.sum(axis=3)
        mixed[:, 1:] += np.einsum("mkxa,kxay->mky", changes[:, :-1], p)
        mixed = mixed.reshape(len(self.cost), n_layers * n_states)[:, self.states]
        block = -np.tensordot(changes, self.cost, ((1, 2, 3), (1, 2, 3)))
        size = n_layers * n_states
        return np.block([[full.reshape(size, size)[np.ix_(self.states, self.states)], mixed.T], [mixed, block]])

    def impossible(self, mu: np.ndarray) -> bool:
        """Whether mu >= 0 proves that no occupancy measure of the set satisfies the cost rows; for large mu only."""
        if mu.max(initial=0.0) < SUSPICIOUS:
            return False
        mu = mu / mu.sum()
        bound = float(mu @ self.threshold)
        return least_cost(self.lo, self.hi, self.mask, np.tensordot(mu, self.cost, 1)) > bound + 1e-9

    def solve(self) -> Projected:
        """The minimiser, by its dual."""
        prices = np.zeros(len(self.signed))
        value, gradient, n, p = self.evaluate(prices)
        error = self.error(prices, gradient)
        for _ in range(STEPS):
            if error < PRECISION:
                break
            if self.impossible(prices[self.signed]):
                error = np.inf
                break
            # a layer's prices are free up to a constant, and rare states have small entries: scaled, then regularised
            free = ~(self.signed & (prices <= 0) & (gradient >= 0))
            hessian = self.hessian(n, p)[np.ix_(free, free)]
            scale = 1 / np.sqrt(np.maximum(np.diag(hessian), _TINY))
            scaled = scale[:, None] * hessian * scale + 1e-10 * np.eye(len(scale))
            step = np.zeros(len(prices))
            step[free] = -scale * np.linalg.solve(scaled, scale * gradient[free])
            step *= min(1.0, LONGEST / np.abs(step).max())
            for halvings in range(40):
                tried = prices + step / 2**halvings
                tried[self.signed] = np.maximum(tried[self.signed], 0.0)
                solution = self.evaluate(tried)
                error_of_solution = self.error(tried, solution[1])
                enough = solution[0] <= value + 1e-4 * float(gradient @ (tried - prices))
                if enough or (halvings == 0 and error_of_solution < 0.9 * error):
                    break
            else:
                break  # rounding decides
            prices, error, (value, gradient, n, p) = tried, error_of_solution, solution
        return Projected(n, p, prices[self.signed], error)

    def error(self, prices: np.ndarray, gradient: np.ndarray) -> float:
        """Distance of the prices from a minimum: |gradient|, and min(gradient, mu) for prices that must be >= 0."""
        return float(np.abs(np.where(self.signed, np.minimum(gradient, prices), gradient)).max(initial=0.0))
