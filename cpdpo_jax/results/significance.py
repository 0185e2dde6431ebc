"""The sign-flip test of paired differences, and Holm's correction for several comparisons."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

FLIPS = 20_000  # maximum number of sign patterns of the test; a random sample if there are more
FAR = 20  # with fewer patterns of the sample as far as the data, the tail is sampled instead
TAIL_FLIPS = 4_000  # sign patterns in the sample of the tail
NORMAL_SEEDS = 1000  # with at least this many seeds the mean of the differences is treated as normal


def sign_flip_p(values: np.ndarray) -> float:
    """Two-sided p value of the sign-flip test of paired differences [seeds]; NaN for one seed.

    Under the null hypothesis the differences are symmetric around 0. The test uses all sign patterns if there are at
    most `FLIPS`, otherwise `FLIPS` random ones, or `tail_p` if few of these are as far as the data; from `NORMAL_SEEDS`
    seeds on it uses the normal approximation.
    """
    n = len(values)
    if n < 2:
        return math.nan
    if not values.any():
        return 1.0
    if n >= NORMAL_SEEDS:
        return math.erfc(abs(values.mean()) / math.sqrt((values**2).mean() / n) / math.sqrt(2))
    signs, exact = _signs(n)
    far = np.abs(signs @ values) >= abs(values.sum()) * (1 - 1e-12)
    if exact:
        return float(far.mean())
    return tail_p(values) if far.sum() < FAR else float((1 + far.sum()) / (1 + len(far)))


def tail_p(values: np.ndarray) -> float:
    """A small p value of the sign-flip test by importance sampling, so that it is not bounded below by a sample's size.

    Each sign is + with probability 1 / (1 + exp(-2 t |v|)), where t makes the mean of the sum equal to the data's sum;
    a pattern with sum S has weight prod cosh(t v) * exp(-t S). The standard error is below 5 % of p.
    """
    from scipy.optimize import brentq

    sizes = np.abs(values[values != 0]) / np.abs(values).max()
    total, least = abs(values.sum()) / np.abs(values).max() * (1 - 1e-12), 2.0 ** (1 - len(sizes))
    if total >= sizes.sum() * (1 - 1e-9):  # all differences have the same sign
        return least
    high = 1.0
    while (sizes * np.tanh(high * sizes)).sum() < total:
        high *= 2
    t = float(brentq(lambda t: (sizes * np.tanh(t * sizes)).sum() - total, 0, high))  # pyright: ignore[reportArgumentType]
    uniform = np.random.default_rng(0).random((TAIL_FLIPS, len(sizes)))
    sums = np.where(uniform < 1 / (1 + np.exp(-2 * t * sizes)), sizes, -sizes).sum(axis=1)
    log_weights = np.logaddexp(t * sizes, -t * sizes).sum() - len(sizes) * math.log(2) - t * sums
    return max(2 * float(np.where(sums >= total, np.exp(log_weights), 0.0).mean()), least)


@functools.lru_cache(maxsize=4)
def _signs(n: int) -> tuple[np.ndarray, bool]:
    """Sign patterns [patterns, n], and whether they are all 2^n patterns."""
    if 2**n <= FLIPS:
        return 1.0 - 2.0 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1), True
    return np.random.default_rng(0).choice([-1.0, 1.0], (FLIPS, n)), False


def with_holm(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with a column `p_holm`: p values corrected for its number of rows by Holm's step-down procedure."""
    p = frame["p"].to_numpy(float)
    order = np.argsort(p, kind="stable")
    order = order[np.isfinite(p[order])]
    steps = p[order] * np.arange(len(order), 0, -1)
    corrected = np.full(len(p), np.nan)
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return frame.assign(p_holm=corrected)
