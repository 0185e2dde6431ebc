"""What every episode needs, compiled by numba: the walk through the layers, the counts, and two value functions.

A walk reads and writes a few entries of large tables, at places that differ from lane to lane: XLA, vectorised over
lanes, would pass over the whole tables. A value function reads each transition once; here its sums stay in registers.
Every function is handed arrays with the lanes last; where an array has one lane, it is the same for all of them.
"""

from __future__ import annotations

import functools

import numpy as np
from numba import njit

from cpdpo_jax.kernels.cpu.lanes import LANES, clip, load, load_counts, multiply_add, spread, store, zero

_compile = functools.partial(njit, nogil=True)


@_compile
def walk(policy, last_action, arrival, payoff, uniforms, states, actions, mean):
    """States and actions [L,B] by inversion of uniforms [L,2+,B], and the mean payoffs there [K,L,B].

    policy [L,S,A,B], last_action [L,S,A,B or 1], arrival [L-1,S,A,S,B or 1] cumulative, payoff [K,L,S,A,B or 1].
    """
    n_layers, n_states, n_actions, n_lanes = policy.shape
    own_model, own_mask = arrival.shape[4] > 1, last_action.shape[3] > 1
    own_payoff = payoff.shape[4] > 1
    for b in range(n_lanes):
        of_model, of_mask, of_payoff = b if own_model else 0, b if own_mask else 0, b if own_payoff else 0
        x = 0
        for k in range(n_layers):
            a, until, u = 0, policy[k, x, 0, b], uniforms[k, 0, b]
            while a < n_actions - 1 and until <= u and not last_action[k, x, a, of_mask]:
                a += 1
                until += policy[k, x, a, b]
            states[k, b] = x
            actions[k, b] = a
            for i in range(payoff.shape[0]):
                mean[i, k, b] = payoff[i, k, x, a, of_payoff]
            if k + 1 < n_layers:
                y, u = 0, uniforms[k, 1, b]
                while y < n_states - 1 and arrival[k, x, a, y, of_model] <= u:
                    y += 1
                x = y


@_compile
def observe(states, actions, payoffs, visits, transitions, total, carry):
    """Count one episode in place: visits [L,S,A,B], transitions [L-1,S,A,S,B], compensated sums [K,L,S,A,B] of payoffs
    [K,L,B].
    """
    n_layers, n_lanes = states.shape
    for k in range(n_layers):
        for b in range(n_lanes):
            x, a = states[k, b], actions[k, b]
            visits[k, x, a, b] += 1
            if k + 1 < n_layers:
                transitions[k, x, a, states[k + 1, b], b] += 1
            for i in range(payoffs.shape[0]):
                before = total[i, k, x, a, b]
                added = payoffs[i, k, b] - carry[i, k, x, a, b]
                after = before + added
                total[i, k, x, a, b] = after
                carry[i, k, x, a, b] = (after - before) - added


@_compile
def visited_rows(states, actions, table, rows):
    """rows[k,y] = table[k, states[k], actions[k], y], lane by lane: table [L-1,S,A,S,B], rows [L-1,S,B]."""
    n_steps, n_states, n_lanes = rows.shape
    for k in range(n_steps):
        for b in range(n_lanes):
            x, a = states[k, b], actions[k, b]
            for y in range(n_states):
                rows[k, y, b] = table[k, x, a, y, b]


def _make_root_value(own):
    """`own`: every lane has a model of its own, else one is for all."""

    @_compile
    def root_value(transition, policy, payoff, values):
        n_layers, n_states, n_actions, n_lanes = policy.shape
        n_payoffs = payoff.shape[0]
        ahead = np.empty(n_payoffs * n_states * LANES, policy.dtype)
        here = np.empty_like(ahead)
        for first in range(0, n_lanes, LANES):
            for k in range(n_layers - 1, -1, -1):
                for x in range(n_states if k else 1):  # the first layer is x_0
                    for i in range(n_payoffs):
                        average = zero(policy)
                        for a in range(n_actions):
                            pair = (k * n_states + x) * n_actions + a
                            at = i * n_layers * n_states * n_actions + pair
                            q = load(payoff, at * n_lanes + first) if own else spread(payoff, at)
                            if k + 1 < n_layers:
                                for y in range(n_states):
                                    row = pair * n_states + y
                                    p = load(transition, row * n_lanes + first) if own else spread(transition, row)
                                    q = multiply_add(p, load(ahead, (i * n_states + y) * LANES), q)
                            average = multiply_add(load(policy, pair * n_lanes + first), q, average)
                        store(average, here, (i * n_states + x) * LANES)
                ahead, here = here, ahead
            for i in range(n_payoffs):
                store(load(ahead, i * n_states * LANES), values, i * n_lanes + first)

    return root_value


_with_one_model, _with_own_models = _make_root_value(False), _make_root_value(True)


@_compile
def root_value(transition, policy, payoff, values):
    """V(x_0) of K payoffs: transition [L-1,S,A,S,B or 1], policy [L,S,A,B], payoff [K,L,S,A,B or 1] -> values [K,B]."""
    if payoff.shape[4] > 1:
        _with_own_models(transition, policy, payoff, values)
    else:
        _with_one_model(transition, policy, payoff, values)


@_compile
def truncated_evaluation(counts, per_visit, policy, payoff, ceiling, action_values, values):
    """Q = clip(v + counts V / n, 0, ceiling) and V = sum_a pi Q, backwards.

    counts [L-1,S,A,S,B] int32, per_visit and policy [L,S,A,B], payoff [K,L,S,A,B], ceiling [K,L]
    -> action_values [K,L,S,A,B], values [K,B]. Payoffs go two by two, so that a count is read once for both.
    """
    n_layers, n_states, n_actions, n_lanes = policy.shape
    n_payoffs, none = payoff.shape[0], zero(policy)
    pairs = n_layers * n_states * n_actions
    ahead = np.zeros((n_payoffs + 1) * n_states * LANES, policy.dtype)  # the partner of an odd payoff is 0
    here = np.zeros_like(ahead)
    for first in range(0, n_lanes, LANES):
        for k in range(n_layers - 1, -1, -1):
            for x in range(n_states):
                for i in range(0, n_payoffs, 2):
                    one, other = i * n_states * LANES, (i + 1) * n_states * LANES
                    average, average_of_other = none, none
                    for a in range(n_actions):
                        pair = (k * n_states + x) * n_actions + a
                        total, total_of_other = none, none
                        if k + 1 < n_layers:
                            for y in range(n_states):
                                m = load_counts(counts, (pair * n_states + y) * n_lanes + first, policy)
                                total = multiply_add(m, load(ahead, one + y * LANES), total)
                                total_of_other = multiply_add(m, load(ahead, other + y * LANES), total_of_other)
                        pi, rate = load(policy, pair * n_lanes + first), load(per_visit, pair * n_lanes + first)
                        at = (i * pairs + pair) * n_lanes + first
                        q = clip(multiply_add(rate, total, load(payoff, at)), none, spread(ceiling, i * n_layers + k))
                        store(q, action_values, at)
                        average = multiply_add(pi, q, average)
                        if i + 1 < n_payoffs:
                            at += pairs * n_lanes
                            q = multiply_add(rate, total_of_other, load(payoff, at))
                            q = clip(q, none, spread(ceiling, (i + 1) * n_layers + k))
                            store(q, action_values, at)
                            average_of_other = multiply_add(pi, q, average_of_other)
                    store(average, here, one + x * LANES)
                    if i + 1 < n_payoffs:
                        store(average_of_other, here, other + x * LANES)
            ahead, here = here, ahead
        for i in range(n_payoffs):
            store(load(ahead, i * n_states * LANES), values, i * n_lanes + first)
