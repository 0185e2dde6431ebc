"""Kernels of every episode for CPUs: the path through the layers, the counts, and the value functions.

A path reads and writes a few entries of large tables at positions that differ between lanes; XLA's code, vectorised
over lanes, would scan whole tables. A value function reads each transition once and keeps its sums in registers.
Lanes are the last axis of every array; all lanes share an array whose last axis has size 1.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import njit

from cpdpo_jax.kernels.machines.numba.simd import (
    LANES,
    add,
    broadcast,
    clip,
    constant,
    divide,
    larger,
    load,
    load_counts,
    multiply,
    multiply_add,
    smaller,
    square_root,
    store,
    where_zero,
    zero,
)

_compile = functools.partial(njit, nogil=True)
_inline = functools.partial(njit, nogil=True, forceinline=True)


def _named(*parts: Any) -> Any:
    """Decorate a function that differs with its closure: give it a name of its own (see `handlers._handler`)."""

    def decorate(function: Any) -> Any:
        function.__qualname__ = "_".join(map(str, parts))
        return function

    return decorate


@_compile
def sample_path(
    policy: Any, last_action: Any, arrival: Any, payoff: Any, uniforms: Any, states: Any, actions: Any, mean: Any
) -> None:
    """States and actions [L,B] by inversion of uniforms [L,2+,B], and the mean payoffs [K,L,B] at these pairs.

    policy [L,S,A,B], last_action [L,S,A,B or 1], arrival [L-1,S,A,S,B or 1] cumulative, payoff [K,L,S,A,B or 1].
    The loops have no early exit: its branch would be mispredicted too often.
    """
    n_layers, n_states, n_actions, n_lanes = policy.shape
    per_lane = 1 if arrival.shape[4] > 1 else 0  # whether each lane has its own model
    mask_per_lane = 1 if last_action.shape[3] > 1 else 0
    states[0] = 0
    for k in range(n_layers):
        for b in range(n_lanes):
            x, a, cumulative = states[k, b], 0, policy[k, states[k, b], 0, b]
            for i in range(n_actions - 1):
                a += (cumulative <= uniforms[k, 0, b]) & (last_action[k, x, i, mask_per_lane * b] == 0)
                cumulative += policy[k, x, i + 1, b]
            actions[k, b] = a
            for i in range(payoff.shape[0]):
                mean[i, k, b] = payoff[i, k, x, a, per_lane * b]
            if k + 1 < n_layers:
                y = 0
                for i in range(n_states - 1):
                    y += arrival[k, x, a, i, per_lane * b] <= uniforms[k, 1, b]
                states[k + 1, b] = y


@_compile
def count_episode(
    states: Any, actions: Any, payoffs: Any, visits: Any, transitions: Any, payoff_sum: Any, payoff_carry: Any
) -> None:
    """Count one episode in place: visits [L,S,A,B], transitions [L-1,S,A,S,B], compensated sums [K,L,S,A,B]."""
    n_layers, n_lanes = states.shape
    for k in range(n_layers):
        for b in range(n_lanes):
            x, a = states[k, b], actions[k, b]
            if x < 0:  # no episode in this lane
                continue
            _count_pair(k, b, x, a, states, visits, transitions)
            for i in range(payoffs.shape[0]):
                before = payoff_sum[i, k, x, a, b]
                added = payoffs[i, k, b] - payoff_carry[i, k, x, a, b]
                after = before + added
                payoff_sum[i, k, x, a, b] = after
                payoff_carry[i, k, x, a, b] = (after - before) - added


@_compile
def count_whole_episode(
    states: Any, actions: Any, payoffs: Any, visits: Any, transitions: Any, payoff_sum: Any
) -> None:
    """`count_episode` for payoffs of 0 and 1, whose sums are exact without a carry."""
    n_layers, n_lanes = states.shape
    for k in range(n_layers):
        for b in range(n_lanes):
            x, a = states[k, b], actions[k, b]
            if x < 0:
                continue
            _count_pair(k, b, x, a, states, visits, transitions)
            for i in range(payoffs.shape[0]):
                payoff_sum[i, k, x, a, b] += payoffs[i, k, b]


@_inline
def _count_pair(k, b, x, a, states, visits, transitions):
    visits[k, x, a, b] += 1
    if k + 1 < states.shape[0]:
        transitions[k, x, a, states[k + 1, b], b] += 1


@_compile
def visited_rows(states: Any, actions: Any, table: Any, rows: Any) -> None:
    """rows[k,y] = table[k, states[k], actions[k], y] for each lane: table [L-1,S,A,S,B], rows [L-1,S,B]."""
    n_steps, n_states, n_lanes = rows.shape
    for k in range(n_steps):
        for b in range(n_lanes):
            x, a = states[k, b], actions[k, b]
            for y in range(n_states):
                rows[k, y, b] = table[k, x, a, y, b]


def root_value(own: bool) -> Any:
    """V(x_0) of K payoffs: transition [L-1,S,A,S,M], policy [L,S,A,B], payoff [K,L,S,A,M] -> values [K,B].

    own: M = B, each lane has its own model; otherwise M = 1.
    """

    @_inline
    def action_value(total, i, place, width, policy, payoff, rest):
        at = i * policy.shape[0] * policy.shape[1] * policy.shape[2] + place[1]
        return add(total, load(payoff, at * policy.shape[3] + place[2]) if own else broadcast(payoff, at))

    name = "root_value", own
    evaluate = _evaluation(name, _own_probability if own else _shared_probability, _no_width, action_value, False)

    @_compile
    @_named(*name)
    def root_value(transition, policy, payoff, values):
        evaluate(transition, policy, payoff, (), values)

    return root_value


def truncated_evaluation() -> Any:
    """Q = clip(v + counts V / n, 0, ceiling), V = sum_a pi Q; per_visit is 1/n.

    counts [L-1,S,A,S,B] int32, per_visit and policy [L,S,A,B], payoff [K,L,S,A,B], ceiling [K,L,1] -> action_values
    [K,L,S,A,B], values [K,B].
    """

    @_inline
    def action_value(total, i, place, width, policy, payoff, rest):
        (k, pair, first), (per_visit, ceiling, action_values) = place, rest
        n_layers, n_states, n_actions, n_lanes = policy.shape
        at = (i * n_layers * n_states * n_actions + pair) * n_lanes + first
        q = multiply_add(load(per_visit, pair * n_lanes + first), total, load(payoff, at))
        q = clip(q, zero(policy), broadcast(ceiling, i * n_layers + k))
        store(q, action_values, at)
        return q

    evaluate = _evaluation(("truncated_evaluation",), _count, _no_width, action_value, True)

    @_compile
    @_named("truncated_evaluation")
    def truncated_evaluation(counts, per_visit, policy, payoff, ceiling, action_values, values):
        evaluate(counts, policy, payoff, (per_visit, ceiling, action_values), values)

    return truncated_evaluation


def optimistic_evaluation() -> Any:
    """The same with CPD-OPPO's payoffs v = min(1, r_hat + beta) + (L-k-1) w/2 and
    v_i = max(0, g_hat_i - beta) - (L-k-1) w/2, and with the ceiling L-k.

    counts [L-1,S,A,S,B] and visits [L,S,A,B] int32, policy [L,S,A,B], payoff_sum [K,L,S,A,B], scale [L,B] (of w, and
    of beta in its last row) -> action_values [K,L,S,A,B], values [K,B].
    """

    @_inline
    def action_value(total, i, place, width, policy, payoff_sum, rest):
        (k, pair, first), (per_visit, beta, w) = place, width
        n_layers, n_states, n_actions, n_lanes = policy.shape
        at = (i * n_layers * n_states * n_actions + pair) * n_lanes + first
        sign = 1.0 if i == 0 else -1.0  # the reward is raised, costs are lowered
        mean = multiply_add(load(payoff_sum, at), per_visit, multiply(beta, constant(sign, policy)))
        mean = smaller(constant(1.0, policy), mean) if i == 0 else larger(zero(policy), mean)
        value = add(mean, multiply(w, constant(0.5 * sign * (n_layers - k - 1), policy)))
        q = clip(multiply_add(per_visit, total, value), zero(policy), constant(float(n_layers - k), policy))
        store(q, rest[2], at)
        return q

    evaluate = _evaluation(("optimistic_evaluation",), _count, _confidence_width, action_value, True)

    @_compile
    @_named("optimistic_evaluation")
    def optimistic_evaluation(counts, visits, policy, payoff_sum, scale, action_values, values):
        evaluate(counts, policy, payoff_sum, (visits, scale, action_values), values)

    return optimistic_evaluation


@_inline
def _shared_probability(table, row, n_lanes, first, like):
    return broadcast(table, row)


@_inline
def _own_probability(table, row, n_lanes, first, like):
    return load(table, row * n_lanes + first)


@_inline
def _count(table, row, n_lanes, first, like):
    return load_counts(table, row * n_lanes + first, like)


@_inline
def _no_width(place, policy, rest):
    return 0


@_inline
def _confidence_width(place, policy, rest):
    """1/n of a pair, beta = min(1, scale_{L-1} / sqrt(n)) and w = min(2, scale_k / sqrt(n)); 1 and 2 if unvisited."""
    (k, pair, first), (visits, scale, _) = place, rest
    n_layers, n_lanes = policy.shape[0], policy.shape[3]
    n, one, two = load_counts(visits, pair * n_lanes + first, policy), constant(1.0, policy), constant(2.0, policy)
    per_visit = divide(one, larger(one, n))
    root, bound = square_root(per_visit), load(scale, (n_layers - 1) * n_lanes + first)
    beta = where_zero(n, one, smaller(one, multiply(bound, root)))
    if k + 1 == n_layers:
        return per_visit, beta, zero(policy)
    return per_visit, beta, where_zero(n, two, smaller(two, multiply(load(scale, k * n_lanes + first), root)))


def _evaluation(name: tuple[Any, ...], probability: Any, width: Any, action_value: Any, all_states: bool) -> Any:
    """The backward recursion of all value functions: V(x_0) of K payoffs in `values` [K,B].

    Three payoffs share one read of the table. name: of the kernel, see `_named`. probability(table, row, ...): an entry
    of the table, or a count. width(place, ...): what the payoffs of a pair share. action_value(total, i, place, width,
    ...): Q of payoff i from total = sum_y P V. place: layer, number of the pair, first lane. rest: further arrays of
    the two. all_states: of the first layer too, not x_0 only.
    """

    @_compile
    @_named("evaluate", *name)
    def evaluate(table, policy, payoff, rest, values):
        n_layers, n_states, n_actions, n_lanes = policy.shape
        n_payoffs, size = payoff.shape[0], n_states * LANES
        ahead = np.zeros((n_payoffs + 3) * size, policy.dtype)  # zeros fill the last step up
        current = np.zeros_like(ahead)
        for first in range(0, n_lanes, LANES):
            for k in range(n_layers - 1, -1, -1):
                for x in range(n_states if all_states or k else 1):
                    for i in range(0, n_payoffs, 3):
                        start, second, third = i * size, i + 1 < n_payoffs, i + 2 < n_payoffs
                        average_r, average_s, average_t = zero(policy), zero(policy), zero(policy)
                        for a in range(n_actions):
                            pair = (k * n_states + x) * n_actions + a
                            pi, place = load(policy, pair * n_lanes + first), (k, pair, first)
                            shared = width(place, policy, rest)  # before the sums: roots and quotients take long
                            r, s, t = zero(policy), zero(policy), zero(policy)
                            if k + 1 < n_layers:
                                for y in range(n_states):
                                    at = start + y * LANES
                                    p = probability(table, pair * n_states + y, n_lanes, first, policy)
                                    r = multiply_add(p, load(ahead, at), r)
                                    s = multiply_add(p, load(ahead, at + size), s)
                                    t = multiply_add(p, load(ahead, at + 2 * size), t)
                            q = action_value(r, i, place, shared, policy, payoff, rest)
                            average_r = multiply_add(pi, q, average_r)
                            if second:
                                q = action_value(s, i + 1, place, shared, policy, payoff, rest)
                                average_s = multiply_add(pi, q, average_s)
                            if third:
                                q = action_value(t, i + 2, place, shared, policy, payoff, rest)
                                average_t = multiply_add(pi, q, average_t)
                        store(average_r, current, start + x * LANES)
                        if second:
                            store(average_s, current, start + size + x * LANES)
                        if third:
                            store(average_t, current, start + 2 * size + x * LANES)
                ahead, current = current, ahead
            for i in range(n_payoffs):
                store(load(ahead, i * size), values, i * n_lanes + first)

    return evaluate
