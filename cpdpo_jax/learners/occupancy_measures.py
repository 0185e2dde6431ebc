"""Occupancy measures over a confidence set of transition functions, for host learners: policies, bounds, least costs.

The set is a box: lower <= P(.|x,a) <= upper, [L-1,S,A,S], each row summing to 1. NumPy in float64, no lane axis.
"""

from __future__ import annotations

import numpy as np


def policy_of(pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """pi(a|x) = q(x,a) / q(x) of an occupancy measure [L,S,A]; uniform where q(x) = 0."""
    total = pairs.sum(axis=2, keepdims=True)
    uniform = mask / np.maximum(mask.sum(axis=2, keepdims=True), 1)
    return np.where(total > 0, pairs / np.where(total > 0, total, 1.0), uniform)


def start(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Equal occupancies for all triples of a layer: pairs [L,S,A], their transition function, the largest of any."""
    real = np.asarray(mask.any(axis=2))[1:, None, None]  # [L-1,1,1,S]
    everything = np.broadcast_to(real, (len(mask) - 1, *mask.shape[1:], mask.shape[1])).astype(float)
    conditional = everything / np.maximum(everything.sum(axis=3, keepdims=True), 1.0)
    return mask / mask.sum(axis=(1, 2), keepdims=True), conditional, everything


def largest_expectation(lower: np.ndarray, upper: np.ndarray, values: np.ndarray) -> np.ndarray:
    """max of p.f over lower <= p <= upper, sum p = 1, for each f of `values`: [S,A,S] twice, [T,S] -> [T,S,A].

    By duality it is lower.f + min_i (1 - sum lower) f_i + sum_j (upper_j - lower_j) (f_j - f_i)^+.
    """
    above = np.maximum(values[:, None, :] - values[:, :, None], 0.0)  # [T,i,j]
    gained = np.tensordot(above, upper - lower, (2, 2)) + (1 - lower.sum(axis=2)) * values[:, :, None, None]
    return np.tensordot(values, lower, (1, 2)) + gained.min(axis=1)


def upper_occupancies(lower: np.ndarray, upper: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """max over the set of the probability to be in each state, [L,S]: one backward recursion for all states.

    The recursion of a target state starts one layer before it, where f is its indicator function.
    """
    n_layers, n_states = policy.shape[:2]
    values = np.zeros((0, n_states))
    for k in reversed(range(n_layers - 1)):
        values = np.concatenate([np.eye(n_states), values])  # the targets of layer k+1, before those of later layers
        values = (policy[k] * largest_expectation(lower[k], upper[k], values)).sum(axis=2)
    return np.concatenate([np.eye(n_states)[:1], values[:, 0].reshape(n_layers - 1, n_states)])


def least_cost(lower: np.ndarray, upper: np.ndarray, mask: np.ndarray, cost: np.ndarray) -> float:
    """min of cost.q over the occupancy measures q of the set: [L,S,A] -> []."""
    value = np.where(mask[-1], cost[-1], np.inf).min(axis=1)
    for k in reversed(range(len(lower))):
        value = np.where(mask[k + 1].any(axis=1), value, 0.0)
        ahead = -largest_expectation(lower[k], upper[k], -value[None])[0]
        value = np.where(mask[k], cost[k] + ahead, np.inf).min(axis=1)
    return float(value[0])
