"""What every episode needs, compiled by numba: the walk through the layers, the counts, and two value functions.

A walk reads and writes a few entries of large tables, at places that differ from lane to lane: XLA, vectorised over
lanes, would pass over the whole tables. A value function reads each transition once; here its sums stay in registers.
Every function is handed arrays with the lanes last; where an array has one lane, it is the same for all of them.
"""

from __future__ import annotations

import functools

import numpy as np
from numba import njit

from cpdpo_jax.kernels.cpu.lanes import (
    LANES,
    add,
    clip,
    divide,
    fill,
    larger,
    load,
    load_counts,
    multiply,
    multiply_add,
    smaller,
    spread,
    square_root,
    store,
    where_zero,
    zero,
)

_compile = functools.partial(njit, nogil=True)


@_compile
def walk(policy, last_action, arrival, payoff, uniforms, states, actions, mean):
    """States and actions [L,B] by inversion of uniforms [L,2+,B], and the mean payoffs there [K,L,B].

    policy [L,S,A,B], last_action [L,S,A,B or 1], arrival [L-1,S,A,S,B or 1] cumulative, payoff [K,L,S,A,B or 1].
    Probabilities that were passed are counted to the end: a way out of the loop would be guessed wrong too often.
    """
    n_layers, n_states, n_actions, n_lanes = policy.shape
    own = 1 if arrival.shape[4] > 1 else 0  # whether lanes have models of their own
    own_mask = 1 if last_action.shape[3] > 1 else 0
    states[0] = 0
    for k in range(n_layers):
        for b in range(n_lanes):
            x, a, until = states[k, b], 0, policy[k, states[k, b], 0, b]
            for i in range(n_actions - 1):
                a += (until <= uniforms[k, 0, b]) & (last_action[k, x, i, own_mask * b] == 0)
                until += policy[k, x, i + 1, b]
            actions[k, b] = a
            for i in range(payoff.shape[0]):
                mean[i, k, b] = payoff[i, k, x, a, own * b]
            if k + 1 < n_layers:
                y = 0
                for i in range(n_states - 1):
                    y += arrival[k, x, a, i, own * b] <= uniforms[k, 1, b]
                states[k + 1, b] = y


def _make_observe(whole):
    """Counting, for any payoffs or for those that are 0 or 1 (`whole`), whose sums lose nothing: no carry is read."""

    @_compile
    def observe(states, actions, payoffs, visits, transitions, total, carry):
        n_layers, n_lanes = states.shape
        for k in range(n_layers):
            for b in range(n_lanes):
                x, a = states[k, b], actions[k, b]
                if x < 0:  # a lane that counts nothing
                    continue
                visits[k, x, a, b] += 1
                if k + 1 < n_layers:
                    transitions[k, x, a, states[k + 1, b], b] += 1
                for i in range(payoffs.shape[0]):
                    before = total[i, k, x, a, b]
                    if whole:
                        total[i, k, x, a, b] = before + payoffs[i, k, b]
                    else:
                        added = payoffs[i, k, b] - carry[i, k, x, a, b]
                        after = before + added
                        total[i, k, x, a, b] = after
                        carry[i, k, x, a, b] = (after - before) - added

    return observe


# Count one episode in place: visits [L,S,A,B], transitions [L-1,S,A,S,B], sums [K,L,S,A,B] of payoffs [K,L,B], carry
observe, observe_whole = _make_observe(False), _make_observe(True)


@_compile
def visited_rows(states, actions, table, rows):
    """rows[k,y] = table[k, states[k], actions[k], y], lane by lane: table [L-1,S,A,S,B], rows [L-1,S,B]."""
    n_steps, n_states, n_lanes = rows.shape
    for k in range(n_steps):
        for b in range(n_lanes):
            x, a = states[k, b], actions[k, b]
            for y in range(n_states):
                rows[k, y, b] = table[k, x, a, y, b]


def _make_evaluation(three, table_is):
    """The recursion of both value functions, for `three` payoffs at a time or two: an entry is read once for them.

    `table_is` "one" model for all lanes, the lanes' "own", or "counts", which are divided by the visits and truncated;
    "optimistic" are counts whose payoffs are made here (`per_visit` are visits then, `payoff` sums, `ceiling` scales).
    """
    step, optimistic = 3 if three else 2, table_is == "optimistic"
    counts = optimistic or table_is == "counts"

    @_compile
    def widths(visits, scale, k, pair, n_layers, n_lanes, first, like):
        """1/n of a pair, beta = min(1, scale_{L-1} / sqrt(n)) and w = min(2, scale_k / sqrt(n)); 1 and 2 if unseen."""
        n, one, two = load_counts(visits, pair * n_lanes + first, like), fill(1.0, like), fill(2.0, like)
        per_visit = divide(one, larger(one, n))
        root, bound = square_root(per_visit), load(scale, (n_layers - 1) * n_lanes + first)
        beta = where_zero(n, one, smaller(one, multiply(bound, root)))
        if k + 1 == n_layers:
            return per_visit, beta, zero(like)
        w = where_zero(n, two, smaller(two, multiply(load(scale, k * n_lanes + first), root)))
        return per_visit, beta, w

    @_compile
    def finished(total, i, place, known, arrays):
        """Q of payoff i at a pair from sum_y P V."""
        (k, pair, n_lanes, first), (per_visit, policy, payoff, ceiling, action_values) = place, arrays
        n_layers, n_states, n_actions = policy.shape[:3]
        at = i * n_layers * n_states * n_actions + pair
        if not counts:
            return add(total, spread(payoff, at) if table_is == "one" else load(payoff, at * n_lanes + first))
        if optimistic:
            rate, beta, w = known
            sign = 1.0 if i == 0 else -1.0  # the reward is raised, costs are lowered
            mean = multiply_add(load(payoff, at * n_lanes + first), rate, multiply(beta, fill(sign, policy)))
            mean = smaller(fill(1.0, policy), mean) if i == 0 else larger(zero(policy), mean)
            value = add(mean, multiply(w, fill(0.5 * sign * (n_layers - k - 1), policy)))
            q = clip(multiply_add(rate, total, value), zero(policy), fill(float(n_layers - k), policy))
        else:
            value = load(payoff, at * n_lanes + first)
            q = multiply_add(load(per_visit, pair * n_lanes + first), total, value)
            q = clip(q, zero(policy), spread(ceiling, i * n_layers + k))
        store(q, action_values, at * n_lanes + first)
        return q

    @_compile
    def evaluate(table, per_visit, policy, payoff, ceiling, action_values, values):
        n_layers, n_states, n_actions, n_lanes = policy.shape
        n_payoffs, size = payoff.shape[0], n_states * LANES
        ahead = np.zeros((n_payoffs + step) * size, policy.dtype)  # what is missing to a whole step is 0
        here, arrays = np.zeros_like(ahead), (per_visit, policy, payoff, ceiling, action_values)
        for first in range(0, n_lanes, LANES):
            for k in range(n_layers - 1, -1, -1):
                for x in range(n_states if counts or k else 1):  # the first layer is x_0
                    for i in range(0, n_payoffs, step):
                        one, more, most = i * size, i + 1 < n_payoffs, three and i + 2 < n_payoffs
                        average_r, average_s, average_t = zero(policy), zero(policy), zero(policy)
                        for a in range(n_actions):
                            pair = (k * n_states + x) * n_actions + a
                            r, s, t = zero(policy), zero(policy), zero(policy)
                            if k + 1 < n_layers:
                                for y in range(n_states):
                                    row, at = pair * n_states + y, one + y * LANES
                                    if table_is == "one":
                                        p = spread(table, row)
                                    elif table_is == "own":
                                        p = load(table, row * n_lanes + first)
                                    else:
                                        p = load_counts(table, row * n_lanes + first, policy)
                                    r = multiply_add(p, load(ahead, at), r)
                                    s = multiply_add(p, load(ahead, at + size), s)
                                    if three:
                                        t = multiply_add(p, load(ahead, at + 2 * size), t)
                            pi, known = load(policy, pair * n_lanes + first), None
                            if optimistic:
                                known = widths(per_visit, ceiling, k, pair, n_layers, n_lanes, first, policy)
                            place = k, pair, n_lanes, first
                            average_r = multiply_add(pi, finished(r, i, place, known, arrays), average_r)
                            if more:
                                average_s = multiply_add(pi, finished(s, i + 1, place, known, arrays), average_s)
                            if most:
                                average_t = multiply_add(pi, finished(t, i + 2, place, known, arrays), average_t)
                        store(average_r, here, one + x * LANES)
                        if more:
                            store(average_s, here, one + size + x * LANES)
                        if most:
                            store(average_t, here, one + 2 * size + x * LANES)
                ahead, here = here, ahead
            for i in range(n_payoffs):
                store(load(ahead, i * size), values, i * n_lanes + first)

    return evaluate


# V(x_0) of K payoffs: transition [L-1,S,A,S,B or 1], policy [L,S,A,B], payoff [K,L,S,A,B or 1] -> values [K,B]
root_value_by_two, root_value_by_three = (_make_evaluation(three, "one") for three in (False, True))
own_root_value_by_two, own_root_value_by_three = (_make_evaluation(three, "own") for three in (False, True))

# Q = clip(v + counts V / n, 0, ceiling), V = sum_a pi Q: counts [L-1,S,A,S,B] int32, per_visit and policy [L,S,A,B],
# payoff [K,L,S,A,B], ceiling [K,L] -> action_values [K,L,S,A,B], values [K,B]
truncated_evaluation_by_two, truncated_evaluation_by_three = (
    _make_evaluation(three, "counts") for three in (False, True)
)

# The same with v = min(1, r_hat + beta) + (L-k-1) w/2, then v_i = max(0, g_hat_i - beta) - (L-k-1) w/2, and L-k for the
# ceiling (CPD-OPPO): counts [L-1,S,A,S,B] and visits [L,S,A,B] int32, policy [L,S,A,B], sums of payoffs [K,L,S,A,B],
# scale [L,B] (of w's rows, then of beta) -> action_values, values
optimistic_evaluation_by_two, optimistic_evaluation_by_three = (
    _make_evaluation(three, "optimistic") for three in (False, True)
)
