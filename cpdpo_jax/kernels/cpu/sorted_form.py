"""Occupancy bounds and dilated bonus of wide layers for `compiled`, in the sorted form, compiled by numba.

The breakpoint form of `extreme` does S^2 work for every pair and target; sorting f once per target and filling the box
in that order does S:
    max p.f = sum_j f_(j) (lower_(j) + take_(j)),   take_(j) = min(spread_(j), slack - take_(1) - ... - take_(j-1))
with f_(1) >= f_(2) >= ... (ascending for the min). The order is the same for all pairs (x,a), which so fill one vector;
it differs from lane to lane, which is what XLA's code, vectorised over lanes, can not follow. One lane at a time,
whatever the block: a lane's bits do not depend on its neighbours, and padding costs a comparison.
"""

from __future__ import annotations

import functools

import numpy as np
from numba import njit

from cpdpo_jax.kernels.cpu.vector import VECTOR, fill, ranks

GROUP = 8  # lanes whose boxes are copied together: reads whole vectors of the lanes-last arrays

_compile = functools.partial(njit, nogil=True, fastmath={"contract", "nsz", "nnan", "ninf"})


@_compile
def _move(low, room, free, f, first, last, n_states, sign, scratch):
    """The extreme expectations [rows,P] of f[row] over a layer's boxes, for the targets first <= row < last.

    One pass over all targets for each step of it: a CPU stalls where it reads at once what it has just scattered.
    """
    key, rank, order, value, step, best = scratch
    for row in range(first, last):
        for j in range(n_states):
            key[row, j] = sign * f[row, j]
    for row in range(first, last):
        ranks(key, row, n_states, rank)  # pyright: ignore[reportCallIssue]
    for row in range(first, last):
        for j in range(n_states):
            i = rank[row, j]
            order[row, i] = j
            value[row, i] = f[row, j]
    for row in range(first, last):
        for i in range(n_states - 1):
            step[row, i] = value[row, i] - value[row, i + 1]
        step[row, n_states - 1] = value[row, n_states - 1]
    for row in range(first, last):
        fill(low, room, free, order, value, step, row, n_states, best)  # pyright: ignore[reportCallIssue]


@_compile
def _average(pi, best, first, last, n_sources, n_actions, out):
    """out[row,y] = sum_a pi(a|y) best[row,(a,y)] for first <= row < last."""
    for row in range(first, last):
        for y in range(n_sources):
            out[row, y] = pi[y] * best[row, y]
        for a in range(1, n_actions):
            for y in range(n_sources):
                out[row, y] += pi[a * n_sources + y] * best[row, a * n_sources + y]


@_compile
def _gather(k, first, lanes, n_sources, policy, lower, spread, slack, pi, low, room, free):
    """Copy layer k of `lanes` lanes from lanes-last arrays: pi and free [G,P], low and room [G,S,P]; pairs (a,y)."""
    n_states, n_actions = policy.shape[1:3]
    for y in range(n_sources):
        for a in range(n_actions):
            p = a * n_sources + y
            for b in range(lanes):
                pi[b, p] = policy[k, y, a, first + b]
                free[b, p] = slack[k, y, a, first + b]
            for j in range(n_states):
                for b in range(lanes):
                    low[b, j, p] = lower[k, y, a, j, first + b]
                    room[b, j, p] = spread[k, y, a, j, first + b]


@njit(nogil=True)  # not `_compile`: here NaN must not equal NaN
def _distinct(arrays):
    """How many lanes there are without those at the end that repeat one in everything: the padding of a block.

    arrays: a tuple of [N,B] each.
    """
    n_lanes = arrays[0].shape[1]
    distinct = 1  # lane distinct - 1 equals all after it, so far
    for array in arrays:
        for i in range(len(array)):
            last, differs = array[i, n_lanes - 1], False
            for lane in range(distinct - 1, n_lanes - 1):  # without a way out: so it is vectorised
                differs |= array[i, lane] != last
            if differs:
                distinct = n_lanes
                while array[i, distinct - 2] == last:
                    distinct -= 1
            if distinct == n_lanes:
                return distinct
    return distinct


@_compile
def _layer_arrays(n_states, n_pairs, kind):
    """pi and free [G,P], low and room [G,S,P], pairs padded to whole vectors."""
    n_pairs = -(-n_pairs // VECTOR) * VECTOR
    return (
        np.zeros((GROUP, n_pairs), kind),
        np.zeros((GROUP, n_pairs), kind),
        np.zeros((GROUP, n_states, n_pairs), kind),
        np.zeros((GROUP, n_states, n_pairs), kind),
        n_pairs,
    )


@_compile
def _scratch(rows, n_states, n_pairs, kind):
    """What `_move` works on: key, rank, order, value, step [rows, padded], best [rows,P]."""
    width = -(-n_states // VECTOR) * VECTOR
    return (
        np.zeros((rows, width), kind),
        np.zeros((rows, width), np.int32),
        np.zeros((rows, width), np.int32),
        np.zeros((rows, width), kind),
        np.zeros((rows, width), kind),
        np.zeros((rows, n_pairs), kind),
    )


@_compile
def _step_back(k, first, lanes, n_sources, policy, lower, spread, slack, excess, arrays, scratch, reach):
    """Both bounds of all targets beyond layer k, seen from layer k: reach [G,2,L*S,S] is brought from k+1 to k."""
    n_states, n_actions = policy.shape[1:3]
    pi, free, low, room, _ = arrays
    best, n_targets = scratch[5], reach.shape[2]
    near = (k + 1) * n_states  # the targets of layer k+1 start here: their f is one-hot
    _gather(k, first, lanes, n_sources, policy, lower, spread, slack, pi, low, room, free)
    for b in range(lanes):
        for bound in range(2):
            f, sign = reach[b, bound], 1 - 2 * bound
            _move(low[b], room[b], free[b], f, near + n_states, n_targets, n_states, sign, scratch)
            for x in range(n_states):
                if bound == 0:
                    for p in range(n_sources * n_actions):
                        best[near + x, p] = low[b, x, p] + min(room[b, x, p], free[b, p])
                else:
                    for a in range(n_actions):
                        for y in range(n_sources):
                            p = a * n_sources + y
                            best[near + x, p] = low[b, x, p] + max(excess[k, y, a, first + b] + room[b, x, p], 0)
            _average(pi[b], best, near, n_targets, n_sources, n_actions, f)


@_compile
def occupancy_bounds(policy, lower, spread, slack, excess, out_low, out_up):
    """`occupancy.occupancy_bounds_in_box` for lanes-last arrays."""
    n_layers, n_states, n_actions, n_lanes = policy.shape
    kind = policy.dtype
    flat = (-1, n_lanes)
    parts = policy.reshape(flat), lower.reshape(flat), spread.reshape(flat), slack.reshape(flat), excess.reshape(flat)
    distinct = _distinct(parts)
    layer = _layer_arrays(n_states, n_states * n_actions, kind)
    layer_0 = _layer_arrays(n_states, n_actions, kind)  # has one state
    n_targets = n_layers * n_states
    scratch = _scratch(n_targets, n_states, layer[4], kind)
    scratch_0 = _scratch(n_targets, n_states, layer_0[4], kind)
    reach = np.zeros((GROUP, 2, n_targets, n_states), kind)  # [lane, bound, target, from state]
    for first in range(0, distinct, GROUP):
        lanes = min(GROUP, distinct - first)
        for k in range(n_layers - 2, 0, -1):
            _step_back(k, first, lanes, n_states, policy, lower, spread, slack, excess, layer, scratch, reach)
        if n_layers > 1:
            _step_back(0, first, lanes, 1, policy, lower, spread, slack, excess, layer_0, scratch_0, reach)
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


@_compile
def dilated_bonus(policy, bonus, dilation, lower, spread, slack, out):
    """`bonus.dilated_bonus_in_box` for lanes-last arrays."""
    n_layers, n_states, n_actions, n_lanes = policy.shape
    kind = policy.dtype
    flat = (-1, n_lanes)
    layers = policy.reshape(flat), bonus.reshape(flat), dilation.reshape(flat)
    distinct = _distinct((*layers, lower.reshape(flat), spread.reshape(flat), slack.reshape(flat)))
    pi, free, low, room, n_pairs = _layer_arrays(n_states, n_states * n_actions, kind)
    scratch = _scratch(GROUP, n_states, n_pairs, kind)
    best = scratch[5]
    ahead = np.zeros((GROUP, n_states), kind)  # sum_a pi(a|x) B(x,a) in the layer after
    for x in range(n_states):
        for a in range(n_actions):
            out[n_layers - 1, x, a] = bonus[n_layers - 1, x]
    for first in range(0, distinct, GROUP):
        lanes = min(GROUP, distinct - first)
        for b in range(lanes):
            ahead[b] = bonus[n_layers - 1, :, first + b]
        for k in range(n_layers - 2, -1, -1):
            _gather(k, first, lanes, n_states, policy, lower, spread, slack, pi, low, room, free)
            for b in range(lanes):
                _move(low[b], room[b], free[b], ahead, b, b + 1, n_states, 1, scratch)
                for x in range(n_states):
                    ahead[b, x] = 0
                    for a in range(n_actions):
                        dilated = bonus[k, x, first + b] + dilation[first + b] * best[b, a * n_states + x]
                        out[k, x, a, first + b] = dilated
                        ahead[b, x] += pi[b, a * n_states + x] * dilated
    for lane in range(distinct, n_lanes):
        out[:, :, :, lane] = out[:, :, :, distinct - 1]
