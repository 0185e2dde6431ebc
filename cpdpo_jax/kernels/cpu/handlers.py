"""The functions that XLA calls: each opens a call frame and hands the arrays in it to a numba function.

Written out one by one: what numba keeps on disk must not depend on functions that are made while a process runs.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
from numba import carray  # pyright: ignore[reportPrivateImportUsage]

from cpdpo_jax.kernels.cpu import episode_form, frame, lanes, sorted_form, vector
from cpdpo_jax.kernels.cpu.episode_form import observe as _observe
from cpdpo_jax.kernels.cpu.episode_form import observe_whole as _observe_whole
from cpdpo_jax.kernels.cpu.episode_form import (
    optimistic_evaluation_by_three,
    optimistic_evaluation_by_two,
    own_root_value_by_three,
    own_root_value_by_two,
    root_value_by_three,
    root_value_by_two,
    truncated_evaluation_by_three,
    truncated_evaluation_by_two,
)
from cpdpo_jax.kernels.cpu.episode_form import visited_rows as _visited_rows
from cpdpo_jax.kernels.cpu.episode_form import walk as _walk
from cpdpo_jax.kernels.cpu.frame import answered, data, shape, words
from cpdpo_jax.kernels.cpu.sorted_form import dilated_bonus as _dilated_bonus
from cpdpo_jax.kernels.cpu.sorted_form import occupancy_bounds as _occupancy_bounds


def source() -> int:
    """A checksum of all that the handlers are made of: numba's cache sees changes of this file and of what is closed
    over, not of other files, and would go on with the old machine code.
    """
    modules = (episode_form, frame, lanes, sorted_form, vector)
    return zlib.crc32(b"".join(Path(str(module.__file__)).read_bytes() for module in modules))


def _occupancy_handler(kind, source):
    def handler(address):
        _ = source
        frame = words(address, 15)  # args at 9, rets at 14
        answer = answered(frame)
        if answer >= 0:
            return answer
        n_layers, n_states, n_actions, n_lanes = shape(frame[9], 0)
        pairs = (n_layers - 1, n_states, n_actions, n_lanes)
        box = (n_layers - 1, n_states, n_actions, n_states, n_lanes)
        _occupancy_bounds(
            carray(data(frame[9], 0), (n_layers, n_states, n_actions, n_lanes), kind),
            carray(data(frame[9], 1), box, kind),
            carray(data(frame[9], 2), box, kind),
            carray(data(frame[9], 3), pairs, kind),
            carray(data(frame[9], 4), pairs, kind),
            carray(data(frame[14], 0), (n_layers, n_states, n_lanes), kind),
            carray(data(frame[14], 1), (n_layers, n_states, n_lanes), kind),
        )
        return 0  # no error

    return handler


def _bonus_handler(kind, source):
    def handler(address):
        _ = source
        frame = words(address, 15)
        answer = answered(frame)
        if answer >= 0:
            return answer
        n_layers, n_states, n_actions, n_lanes = shape(frame[9], 0)
        box = (n_layers - 1, n_states, n_actions, n_states, n_lanes)
        _dilated_bonus(
            carray(data(frame[9], 0), (n_layers, n_states, n_actions, n_lanes), kind),
            carray(data(frame[9], 1), (n_layers, n_states, n_lanes), kind),
            carray(data(frame[9], 2), (n_lanes,), kind),
            carray(data(frame[9], 3), box, kind),
            carray(data(frame[9], 4), box, kind),
            carray(data(frame[9], 5), (n_layers - 1, n_states, n_actions, n_lanes), kind),
            carray(data(frame[14], 0), (n_layers, n_states, n_actions, n_lanes), kind),
        )
        return 0

    return handler


def _walk_handler(kind, source):
    def handler(address):
        _ = source
        frame = words(address, 15)
        answer = answered(frame)
        if answer >= 0:
            return answer
        n_layers, n_states, n_actions, n_lanes = shape(frame[9], 0)
        pairs = (n_layers, n_states, n_actions)
        n_payoffs, n_draws = shape(frame[9], 3)[0], shape(frame[9], 4)[1]
        _walk(
            carray(data(frame[9], 0), (*pairs, n_lanes), kind),
            carray(data(frame[9], 1), (*pairs, shape(frame[9], 1)[3]), np.uint8),
            carray(data(frame[9], 2), (n_layers - 1, n_states, n_actions, n_states, shape(frame[9], 2)[4]), kind),
            carray(data(frame[9], 3), (n_payoffs, *pairs, shape(frame[9], 3)[4]), kind),
            carray(data(frame[9], 4), (n_layers, n_draws, n_lanes), kind),
            carray(data(frame[14], 0), (n_layers, n_lanes), np.int32),
            carray(data(frame[14], 1), (n_layers, n_lanes), np.int32),
            carray(data(frame[14], 2), (n_payoffs, n_layers, n_lanes), kind),
        )
        return 0

    return handler


def _observe_handler(kind, source, whole):
    def handler(address):
        _ = source
        frame = words(address, 15)
        answer = answered(frame)
        if answer >= 0:
            return answer
        n_layers, n_states, n_actions, n_lanes = shape(frame[14], 0)
        pairs, n_payoffs = (n_layers, n_states, n_actions, n_lanes), shape(frame[9], 2)[0]
        states = carray(data(frame[9], 0), (n_layers, n_lanes), np.int32)
        actions = carray(data(frame[9], 1), (n_layers, n_lanes), np.int32)
        payoffs = carray(data(frame[9], 2), (n_payoffs, n_layers, n_lanes), kind)
        visits = carray(data(frame[14], 0), pairs, np.int32)
        transitions = carray(data(frame[14], 1), (n_layers - 1, n_states, n_actions, n_states, n_lanes), np.int32)
        total = carray(data(frame[14], 2), (n_payoffs, *pairs), kind)
        if whole:
            _observe_whole(states, actions, payoffs, visits, transitions, total, total)  # there is no carry
        else:
            carry = carray(data(frame[14], 3), (n_payoffs, *pairs), kind)
            _observe(states, actions, payoffs, visits, transitions, total, carry)
        return 0

    return handler


def _rows_handler(kind, source):
    def handler(address):
        _ = source
        frame = words(address, 15)
        answer = answered(frame)
        if answer >= 0:
            return answer
        n_steps, n_states, n_actions, _, n_lanes = shape(frame[9], 2)
        _visited_rows(
            carray(data(frame[9], 0), (n_steps + 1, n_lanes), np.int32),
            carray(data(frame[9], 1), (n_steps + 1, n_lanes), np.int32),
            carray(data(frame[9], 2), (n_steps, n_states, n_actions, n_states, n_lanes), np.int32),
            carray(data(frame[14], 0), (n_steps, n_states, n_lanes), np.int32),
        )
        return 0

    return handler


def _root_value_handler(kind, source, three, own):
    def handler(address):
        _ = source
        frame = words(address, 15)
        answer = answered(frame)
        if answer >= 0:
            return answer
        n_layers, n_states, n_actions, n_lanes = shape(frame[9], 1)
        n_payoffs, n_models = shape(frame[9], 2)[0], shape(frame[9], 2)[4]
        transition = carray(data(frame[9], 0), (n_layers - 1, n_states, n_actions, n_states, n_models), kind)
        policy = carray(data(frame[9], 1), (n_layers, n_states, n_actions, n_lanes), kind)
        payoff = carray(data(frame[9], 2), (n_payoffs, n_layers, n_states, n_actions, n_models), kind)
        values, none = carray(data(frame[14], 0), (n_payoffs, n_lanes), kind), np.empty(0, kind)
        if own:
            if three:
                own_root_value_by_three(transition, none, policy, payoff, none, none, values)
            else:
                own_root_value_by_two(transition, none, policy, payoff, none, none, values)
        else:
            if three:
                root_value_by_three(transition, none, policy, payoff, none, none, values)
            else:
                root_value_by_two(transition, none, policy, payoff, none, none, values)
        return 0

    return handler


def _evaluation_handler(kind, source, three, optimistic):
    of_visits = np.int32 if optimistic else kind

    def handler(address):
        _ = source
        frame = words(address, 15)
        answer = answered(frame)
        if answer >= 0:
            return answer
        n_payoffs, n_layers, n_states, n_actions, n_lanes = shape(frame[9], 3)
        pairs = (n_layers, n_states, n_actions, n_lanes)
        counts = carray(data(frame[9], 0), (n_layers - 1, n_states, n_actions, n_states, n_lanes), np.int32)
        visits, policy = carray(data(frame[9], 1), pairs, of_visits), carray(data(frame[9], 2), pairs, kind)
        payoff = carray(data(frame[9], 3), (n_payoffs, *pairs), kind)
        action_values = carray(data(frame[14], 0), (n_payoffs, *pairs), kind)
        values = carray(data(frame[14], 1), (n_payoffs, n_lanes), kind)
        if optimistic:
            scale = carray(data(frame[9], 4), (n_layers, n_lanes), kind)
            if three:
                optimistic_evaluation_by_three(counts, visits, policy, payoff, scale, action_values, values)
            else:
                optimistic_evaluation_by_two(counts, visits, policy, payoff, scale, action_values, values)
        else:
            ceiling = carray(data(frame[9], 4), (n_payoffs, n_layers), kind)
            if three:
                truncated_evaluation_by_three(counts, visits, policy, payoff, ceiling, action_values, values)
            else:
                truncated_evaluation_by_two(counts, visits, policy, payoff, ceiling, action_values, values)
        return 0

    return handler


HANDLERS = {
    "occupancy_bounds": _occupancy_handler,
    "dilated_bonus": _bonus_handler,
    "walk": _walk_handler,
    "observe": _observe_handler,
    "visited_rows": _rows_handler,
    "root_value": _root_value_handler,
    "evaluation": _evaluation_handler,
}
