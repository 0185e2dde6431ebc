"""Occupancy bounds of wide layers for a CPU, by sorting.

The breakpoint form of `extreme` does S^2 work for every pair and target. Sorting f once per target and filling the box
in that order does S:
    max p.f = sum_j f_(j) (lower_(j) + take_(j)),   take_(j) = min(spread_(j), slack - take_(1) - ... - take_(j-1))
with spread = upper - lower, slack = 1 - sum lower and f_(1) >= f_(2) >= ... (ascending for the min). All pairs (x,a)
share the order and so fill one vector. It differs between lanes, which XLA's code, vectorised over lanes, cannot
follow. Lanes are computed one at a time: their bits do not depend on their neighbours, and padding costs a comparison.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from cpdpo_jax.kernels.machines.numba.simd import LANES
from cpdpo_jax.kernels.machines.numba.sorted_simd import compile_sorted, fill_boxes, ranks
from cpdpo_jax.kernels.machines.sizes import SORTED_LANES


@compile_sorted
def _move(low, room, free, f, first, last, n_states, sign, scratch):
    """The extreme expectations [rows,P] of f[row] over a layer's boxes, for the targets first <= row < last.

    Each step is a pass over all targets: a CPU stalls if it reads what it has just scattered.
    """
    key, rank, order, value, step, best = scratch
    for row in range(first, last):
        for j in range(n_states):
            key[row, j] = sign * f[row, j]
    for row in range(first, last):
        ranks(key, row, n_states, rank)
    for row in range(first, last):
        for j in range(n_states):
            i = np.int64(rank[row, j])
            order[row, i] = j
            value[row, i] = f[row, j]
    for row in range(first, last):
        for i in range(n_states - 1):
            step[row, i] = value[row, i] - value[row, i + 1]
        step[row, n_states - 1] = value[row, n_states - 1]
    for row in range(first, last):
        fill_boxes(low, room, free, order, value, step, row, n_states, best)


@compile_sorted
def _average(pi, best, first, last, n_sources, n_actions, out):
    """out[row,y] = sum_a pi(a|y) best[row,(a,y)] for first <= row < last."""
    for row in range(first, last):
        for y in range(n_sources):
            out[row, y] = pi[y] * best[row, y]
        for a in range(1, n_actions):
            for y in range(n_sources):
                out[row, y] += pi[a * n_sources + y] * best[row, a * n_sources + y]


@compile_sorted
def _gather(k, first, lanes, n_sources, policy, lower, upper, arrays):
    """Copy layer k of `lanes` lanes from lanes-last arrays, with the sums of each box; see `_layer_arrays`."""
    pi, low, room, free, over = arrays
    n_states, n_actions = policy.shape[1:3]
    for y in range(n_sources):
        for a in range(n_actions):
            p = a * n_sources + y
            for b in range(lanes):
                pi[b, p] = policy[k, y, a, first + b]
                free[b, p] = over[b, p] = 0
            for j in range(n_states):
                for b in range(lanes):
                    smallest, largest = lower[k, y, a, j, first + b], upper[k, y, a, j, first + b]
                    low[b, j, p] = smallest
                    room[b, j, p] = largest - smallest
                    free[b, p] += smallest
                    over[b, p] += largest
            for b in range(lanes):
                free[b, p] = 1 - free[b, p]
                over[b, p] = 1 - over[b, p]


@njit(nogil=True)  # not `compile_sorted`: NaN must not equal NaN here
def _distinct(arrays):
    """The number of lanes without the copies of one lane at the end, which pad a block.

    arrays: a tuple of [N,B] each.
    """
    n_lanes = arrays[0].shape[1]
    distinct = 1  # lanes distinct - 1, ... are equal so far
    for array in arrays:
        for i in range(len(array)):
            last, differs = array[i, n_lanes - 1], False
            for lane in range(distinct - 1, n_lanes - 1):  # no early exit, so that it is vectorised
                differs |= array[i, lane] != last
            if differs:
                distinct = n_lanes
                while array[i, distinct - 2] == last:
                    distinct -= 1
            if distinct == n_lanes:
                return distinct
    return distinct


@compile_sorted
def _layer_arrays(n_states, n_pairs, kind):
    """pi [G,P], lower and spread [G,S,P], 1 - sum lower and 1 - sum upper [G,P]; pairs (a,y) in whole vectors."""
    padded = -(-n_pairs // LANES) * LANES
    return (
        np.zeros((SORTED_LANES, padded), kind),
        np.zeros((SORTED_LANES, n_states, padded), kind),
        np.zeros((SORTED_LANES, n_states, padded), kind),
        np.zeros((SORTED_LANES, padded), kind),
        np.zeros((SORTED_LANES, padded), kind),
    )


@compile_sorted
def _scratch(rows, n_states, n_pairs, kind):
    """The scratch memory of `_move`: key, rank, order, value, step [rows, padded], best [rows,P]."""
    width = -(-n_states // LANES) * LANES
    return (
        np.zeros((rows, width), kind),
        np.zeros((rows, width), kind),
        np.zeros((rows, width), np.int64),
        np.zeros((rows, width), kind),
        np.zeros((rows, width), kind),
        np.zeros((rows, n_pairs), kind),
    )


@compile_sorted
def _step_back(k, first, lanes, n_sources, policy, lower, upper, arrays, scratch, reach):
    """Both bounds of all targets beyond layer k, seen from layer k: moves reach [G,2,L*S,S] from k+1 to k."""
    n_states, n_actions = policy.shape[1:3]
    pi, low, room, free, over = arrays
    best, n_targets = scratch[5], reach.shape[2]
    near = (k + 1) * n_states  # the targets of layer k+1 start here: their f is one-hot
    _gather(k, first, lanes, n_sources, policy, lower, upper, arrays)
    for b in range(lanes):
        for bound in range(2):
            f, sign = reach[b, bound], 1 - 2 * bound
            _move(low[b], room[b], free[b], f, near + n_states, n_targets, n_states, sign, scratch)
            for x in range(n_states):
                for p in range(n_sources * n_actions):
                    if bound == 0:
                        best[near + x, p] = low[b, x, p] + min(room[b, x, p], free[b, p])
                    else:
                        best[near + x, p] = low[b, x, p] + max(over[b, p] + room[b, x, p], 0)
            _average(pi[b], best, near, n_targets, n_sources, n_actions, f)


@compile_sorted
def occupancy_bounds(policy: Any, lower: Any, upper: Any, out_low: Any, out_up: Any) -> None:
    """See `cpdpo_jax.kernels.occupancy`: policy [L,S,A,B], lower and upper [L-1,S,A,S,B] -> low and up [L,S,B]."""
    n_layers, n_states, n_actions, n_lanes = policy.shape
    kind, flat = policy.dtype, (-1, n_lanes)
    distinct = _distinct((policy.reshape(flat), lower.reshape(flat), upper.reshape(flat)))
    layer = _layer_arrays(n_states, n_states * n_actions, kind)
    layer_0 = _layer_arrays(n_states, n_actions, kind)  # its only state is x_0
    n_targets = n_layers * n_states
    scratch = _scratch(n_targets, n_states, layer[0].shape[1], kind)
    scratch_0 = _scratch(n_targets, n_states, layer_0[0].shape[1], kind)
    reach = np.zeros((SORTED_LANES, 2, n_targets, n_states), kind)  # [lane, bound, target, from state]
    for first in range(0, distinct, SORTED_LANES):
        lanes = min(SORTED_LANES, distinct - first)
        for k in range(n_layers - 2, 0, -1):
            _step_back(k, first, lanes, n_states, policy, lower, upper, layer, scratch, reach)
        if n_layers > 1:
            _step_back(0, first, lanes, 1, policy, lower, upper, layer_0, scratch_0, reach)
        for b in range(lanes):
            for x in range(n_states):
                out_up[0, x, first + b] = out_low[0, x, first + b] = x == 0
            for h in range(1, n_layers):
                for x in range(n_states):
                    up = min(max(reach[b, 0, h * n_states + x, 0], 0), 1)
                    out_up[h, x, first + b] = up
                    out_low[h, x, first + b] = min(max(reach[b, 1, h * n_states + x, 0], 0), up)
    for lane in range(distinct, n_lanes):
        out_up[:, :, lane], out_low[:, :, lane] = out_up[:, :, distinct - 1], out_low[:, :, distinct - 1]
