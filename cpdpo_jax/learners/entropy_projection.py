"""The projection, in relative entropy, onto the occupancy measures of a confidence set: the heart of UOB-REPS.

Over triples q(k,x,a,y), w > 0 given, lo <= hi the box of the set:
    min over q of sum q ln(q / w)   s.t.   every layer sums to 1,  sum_{a,y} q(k,x,a,y) = sum_{x',a'} q(k-1,x',a',x),
                                           lo(y|x,a) sum_y q <= q(x,a,y) <= hi(y|x,a) sum_y q
Write q(x,a,y) = n(x,a) p(y|x,a). With a price beta(x) for the flow through each state the problem falls apart:
    for a pair     h(x,a) = max over p in the box of sum_y p (beta(y) + ln w(y) - ln p) - beta(x),
                   attained at p = clip(w exp(beta - nu), lo, hi) with nu so that p sums to 1
    for a layer    n(x,a) = exp(h(x,a)) / Z_k,   Z_k = sum exp(h)
    for the prices minimise F(beta) = sum_k ln Z_k, convex, whose gradient is inflow - outflow of every state
so that F has one variable per state, where the rows of the box would have one each. Newton's method with halved steps;
F is once differentiable, and twice but where p meets an end of the box.

NumPy in float64, no lane axis. Padded next states have hi = 0. In the last layer y is x_L alone.
"""

from __future__ import annotations

import numpy as np

STEPS = 100  # of Newton's method, at most; a handful is the rule
PRECISION = 1e-11  # of the flow, when to stop
_TINY = 1e-300  # the least weight: an occupancy that underflowed could never come back


def conditional(log_weight: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
    """p = clip(exp(z - nu), lo, hi) with sum_y p = 1, exactly: [...,S] three times -> [...,S].

    sum_y clip(exp(z - nu)) falls in nu and bends where an entry meets an end of its box. Between the two bends round
    the answer it is known which entries are free, and nu has a closed form.
    """
    with np.errstate(divide="ignore"):
        bends = np.concatenate([log_weight - np.log(lo), log_weight - np.log(hi)], axis=-1)
    open_ended = hi > lo
    bends = np.where(np.concatenate([open_ended, open_ended], axis=-1), bends, np.inf)  # where p is no choice: no bend
    bends = np.sort(bends, axis=-1)  # [...,2S], +inf for lo = 0
    finite = np.isfinite(bends)
    at = np.where(finite, bends, 0.0)[..., None]
    total = np.clip(np.exp(np.minimum(log_weight[..., None, :] - at, 700.0)), lo[..., None, :], hi[..., None, :])
    above = (finite & (total.sum(axis=-1) >= 1.0)).sum(axis=-1, keepdims=True)  # bends at which p is too large still
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
        share = np.where(free, np.exp(log_weight - most), 0.0)
        spread = share / np.maximum(share.sum(axis=-1, keepdims=True), _TINY) * (1.0 - fixed)
    return np.clip(np.where(free, spread, np.clip(raw, lo, hi)), lo, hi)


class Projection:
    """One problem: log weights of the triples [L-1,S,A,S] and of the last layer's pairs [S,A], box, mask [L,S,A]."""

    def __init__(self, log_weight: np.ndarray, last: np.ndarray, lo: np.ndarray, hi: np.ndarray, mask: np.ndarray):
        self.log_weight, self.last, self.lo, self.hi, self.mask = log_weight, last, lo, hi, mask
        self.real: np.ndarray = np.asarray(mask.any(axis=2))
        self.real[0, 0] = False  # x_0: its flow is that of its layer
        self.states = np.flatnonzero(self.real)  # the prices that there are

    def evaluate(self, beta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        """F, the gradient [L,S], n(x,a) [L,S,A] and p(y|x,a) [L-1,S,A,S]; beta [L,S]."""
        z = self.log_weight + beta[1:, None, None, :]
        p = conditional(z, self.lo, self.hi)
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(p > 0, p * (z - np.log(p)), 0.0)
        h = np.concatenate([terms.sum(axis=3), self.last[None]]) - beta[:, :, None]
        h = np.where(self.mask, h, -np.inf)
        most = h.max(axis=(1, 2), keepdims=True)
        n = np.exp(h - most)
        total = n.sum(axis=(1, 2), keepdims=True)
        n /= total
        gradient = -n.sum(axis=2)
        gradient[1:] += np.einsum("kxa,kxay->ky", n[:-1], p)
        return float((most + np.log(total)).sum()), np.where(self.real, gradient, 0.0), n, p

    def hessian(self, n: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Of F over the prices of all states, [L S, L S]: the covariance of p - e_x, and what p itself changes by."""
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
            own = np.einsum("xa,xay,xaz->yz", n[k], p[k], p[k]) - np.outer(inflow, inflow)
            own += np.diag(np.einsum("xa,xay->y", n[k], free[k]))
            own -= np.einsum("xa,xay,xaz->yz", n[k] / sums[k], free[k], free[k])
            full[k + 1, :, k + 1, :] += own
        size = n_layers * n_states
        return full.reshape(size, size)

    def solve(self) -> tuple[np.ndarray, np.ndarray, float]:
        """(n(x,a) [L,S,A], p(y|x,a) [L-1,S,A,S], the largest error of the flow that is left)."""
        beta = np.zeros(self.real.shape)
        value, gradient, n, p = self.evaluate(beta)
        for _ in range(STEPS):
            if np.abs(gradient).max() < PRECISION:
                break
            # a layer's prices are free up to a constant, and rare states have small entries: scaled, then regularised
            hessian = self.hessian(n, p)[np.ix_(self.states, self.states)]
            scale = 1 / np.sqrt(np.maximum(np.diag(hessian), _TINY))
            scaled = scale[:, None] * hessian * scale + 1e-10 * np.eye(len(scale))
            step = np.zeros(beta.size)
            step[self.states] = -scale * np.linalg.solve(scaled, scale * gradient.ravel()[self.states])
            step = step.reshape(beta.shape)
            slope = float((gradient * step).sum())
            for halvings in range(40):
                tried = beta + step / 2**halvings
                found = self.evaluate(tried)
                smaller = np.abs(found[1]).max() < 0.9 * np.abs(gradient).max()
                if found[0] <= value + 1e-4 * slope / 2**halvings or (smaller and halvings == 0):
                    break
            else:
                break  # rounding decides
            beta, (value, gradient, n, p) = tried, found
        return n, p, float(np.abs(gradient).max())
