"""From an ordinary finite-horizon CMDP, whose steps share their states, to the layered CMDP of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from cpdpo_jax.common.types import CMDP, Units
from cpdpo_jax.envs.build import ROUNDING, check_shape, clean_rows, first, make_cmdp, to_array, to_mask

SENSES = ("<=", ">=")
ADDED = -1  # stands for the added x_0 in `layer_states`


class _Source(NamedTuple):
    """The episodic model after its checks, with arrays for each step."""

    transition: np.ndarray  # [H-1, S, A, S], rows of pairs that no episode visits are 0
    start: np.ndarray  # [S] distribution of the first state
    pairs: np.ndarray  # [H, S, A] bool, the pairs that some policy can visit


def from_episodic(
    transition: Any,
    reward: Any,
    cost: Any,
    threshold: Any,
    *,
    horizon: int,
    initial: Any = 0,
    sense: str | Sequence[str] = "<=",
    minimize: bool = False,
    action_mask: Any = None,
    noise: str = "bernoulli",
    concentration: float = 10.0,
    name: str | None = None,
    reward_unit: str | None = None,
    cost_units: str | Sequence[str] | None = None,
) -> CMDP:
    """Lay out an episodic CMDP of H steps in layers, one per step, with the states reachable at that step.

    A distribution over several first states becomes an added first layer: x_0 with a single action without reward
    or cost; then L = H + 1, otherwise L = H. A payoff v with an entry outside [0, 1] (over the pairs that can be
    visited) is mapped to (v - lo) / (hi - lo) at every step, and so is its threshold. A utility u >= b becomes the
    cost 1 - u <= H - b; an objective to be minimised becomes the reward 1 - v. `units` stores the inverse map:
    original value = scale * value + offset (see `original_units`). `layer_states` maps states to the source's.

    Args:
        transition: `[S, A, S]`, or `[H, S, A, S]` if the steps differ (the last step's is not used).
        reward: `[S, A]` or `[H, S, A]`, mean rewards; with `minimize`, the objective to be minimised.
        cost: `[M, S, A]` or `[M, H, S, A]`, mean costs, or utilities where `sense` is ">=".
        threshold: `[M]`, in the units of cost, for the sum over an episode.
        horizon: H, the number of steps.
        initial: the first state, or a distribution `[S]` over it.
        sense: "<=" or ">=", one for all constraints or one for each.
        minimize: whether the objective is minimised.
        action_mask: `[S, A]` or `[H, S, A]` bool, True where an action is allowed; None allows all.
        noise: as in `make_cmdp`, of the mapped samples in [0, 1].
        concentration: as in `make_cmdp`.
        name: as in `make_cmdp`.
        reward_unit: the unit of the reward, such as "dollars": tables and figures of results show it.
        cost_units: the units of the costs, one for all constraints or one for each.

    Returns:
        A `CMDP` whose states are numbered from 0 in each layer, in the order of the source.
    """
    source = _source(transition, horizon, initial, action_mask)
    shape = source.pairs.shape
    reward = _per_step("reward", reward, shape)
    threshold, cost = to_array("threshold", threshold), to_array("cost", cost)
    if cost.ndim not in (3, 4) or cost.shape[0] == 0:
        raise ValueError(f"cost has shape {cost.shape}; give [M, S, A] or [M, H, S, A] with M at least 1.")
    check_shape("threshold", threshold, cost.shape[:1], "[M], one number for each constraint of cost")
    senses = (sense,) * len(cost) if isinstance(sense, str) else tuple(sense)
    if len(senses) != len(cost) or not set(senses) <= set(SENSES):
        raise ValueError(
            f"sense is {sense!r}; give '<=' or '>=', one for all or one for each of {len(cost)} constraints."
        )
    named = _unit_names(reward_unit, cost_units, len(cost))

    states = _reached(source)
    n_layers = horizon + int(np.count_nonzero(source.start) > 1)
    reward, reward_scale, reward_offset = _to_unit("reward", reward, source.pairs, minimize)
    costs, limits, scales, offsets = [], [], [], []
    for i, payoff in enumerate(cost):
        payoff, scale, offset = _to_unit(
            f"cost[{i}]", _per_step(f"cost[{i}]", payoff, shape), source.pairs, senses[i] == ">="
        )
        costs.append(_layered(payoff, states, n_layers))
        limits.append(_limit(i, float(threshold[i]), scale, offset * horizon, n_layers))
        scales.append(scale)
        offsets.append(offset * horizon)
    mask = _layered(source.pairs, states, n_layers)
    if n_layers > horizon:
        mask[0, 0, 0] = 1  # the one action of the added x_0
    cmdp = make_cmdp(
        _layered_transition(source, states, n_layers),
        _layered(reward, states, n_layers),
        np.stack(costs),
        limits,
        action_mask=mask,
        noise=noise,
        concentration=concentration,
        name=name,
        units=Units(np.asarray(reward_scale), np.asarray(reward_offset * horizon), np.array(scales), np.array(offsets)),
    )
    return replace(cmdp, unit_names=named)


def layer_states(transition: Any, *, horizon: int, initial: Any = 0, action_mask: Any = None) -> list[np.ndarray]:
    """The source's states in each layer that `from_episodic` builds from the same arguments.

    `layer_states(...)[k][x]` is the source's number of state x of layer k; `ADDED` (-1) for an added x_0.
    """
    source = _source(transition, horizon, initial, action_mask)
    added = [np.array([ADDED])] if np.count_nonzero(source.start) > 1 else []
    return added + _reached(source)


def original_units(cmdp: CMDP, reward_value: Any, cost_values: Any) -> tuple[np.ndarray, np.ndarray]:
    """Values V(r) `[..., *B]` and V(g) `[..., M, *B]` in the units of the source: scale * value + offset."""
    units = cmdp.units
    return (
        np.asarray(units.reward_scale * np.asarray(reward_value) + units.reward_offset),
        np.asarray(units.cost_scale * np.asarray(cost_values) + units.cost_offset),
    )


def _source(transition: Any, horizon: int, initial: Any, action_mask: Any) -> _Source:
    """Check the dynamics and find the reachable pairs, forward through the steps from the initial states."""
    if isinstance(horizon, bool) or not isinstance(horizon, int | np.integer) or horizon < 1:
        raise ValueError(f"horizon is {horizon!r}; give the number of steps, an integer of at least 1.")
    transition = to_array("transition", transition)
    if transition.ndim not in (3, 4) or 0 in transition.shape:
        raise ValueError(f"transition has shape {transition.shape}; give [S, A, S] or [H, S, A, S].")
    n_states, n_actions = transition.shape[-3:-1]
    row = (n_states, n_actions, n_states)
    expected = row if transition.ndim == 3 else (horizon, *row)
    check_shape("transition", transition, expected, "[S, A, S], or [H, S, A, S] with H = horizon")
    start = _start(initial, n_states)
    shape = (horizon, n_states, n_actions)
    allowed = np.ones(shape) if action_mask is None else _per_step("action_mask", action_mask, shape)
    allowed = to_mask("action_mask", allowed, shape, "[S, A] or [H, S, A]")

    steps = np.broadcast_to(transition, (horizon, *row))
    pairs, reached = np.zeros(shape, bool), start > 0
    for h in range(horizon):
        pairs[h] = allowed[h] & reached[:, None]
        idle = reached & ~pairs[h].any(axis=1)
        if idle.any():
            x = first(idle)[0]
            raise ValueError(f"action_mask allows no action in state {x}, which step {h} can reach; allow one.")
        reached = (steps[h] > 0)[pairs[h]].any(axis=0)
    used = pairs[:-1]  # the last step leads to x_L whatever its row contains
    if transition.ndim == 3:
        clean_rows("transition", transition, np.asarray(used.any(axis=0)))
    return _Source(clean_rows("transition", steps[:-1], used), start, pairs)


def _unit_names(reward: str | None, costs: str | Sequence[str] | None, n_constraints: int) -> tuple[str, ...]:
    """The reward's unit, then that of each constraint; reward or cost where it is not given. () if none is given."""
    if reward is None and costs is None:
        return ()
    each = (costs or "cost",) * n_constraints if costs is None or isinstance(costs, str) else tuple(costs)
    names = (reward or "reward", *each)
    if len(each) != n_constraints or not all(isinstance(name, str) and name.strip() for name in names):
        raise ValueError(
            f"reward_unit is {reward!r} and cost_units are {costs!r}; give words, one for all or one for each of "
            f"{n_constraints} constraints."
        )
    return names


def _start(initial: Any, n_states: int) -> np.ndarray:
    """The distribution `[S]` of the first state, from a distribution or a state."""
    if np.ndim(initial) == 0:
        if isinstance(initial, bool) or not isinstance(initial, int | np.integer) or not 0 <= initial < n_states:
            raise ValueError(f"initial is {initial!r}; give a state in 0..{n_states - 1}, or a distribution [S].")
        return np.eye(n_states)[initial]
    start = to_array("initial", initial)
    check_shape("initial", start, (n_states,), "a state, or a distribution [S]")
    return clean_rows("initial", start, np.array(True))


def _reached(source: _Source) -> list[np.ndarray]:
    """The original states that each step can reach, ascending."""
    return [np.flatnonzero(pairs.any(axis=1)) for pairs in source.pairs]


def _per_step(field: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    """A payoff or mask `[S, A]` or `[H, S, A]` as `[H, S, A]`."""
    value = to_array(field, value)
    expected = shape if value.ndim == 3 else shape[1:]
    check_shape(field, value, expected, "[S, A], or [H, S, A] with H = horizon and transition's S and A")
    return np.broadcast_to(value, shape)


def _to_unit(field: str, value: np.ndarray, pairs: np.ndarray, flip: bool) -> tuple[np.ndarray, float, float]:
    """The payoff mapped to [0, 1] (1 minus that if flipped); per step, original = scale * mapped + offset."""
    wrong = pairs & ~np.isfinite(value)
    if wrong.any():
        index = first(wrong)
        raise ValueError(f"{field}{[*index]} (step, state, action) is {value[index]}; give a finite number.")
    low, high = float(value[pairs].min()), float(value[pairs].max())
    scale, offset = 1.0, 0.0
    if low < -ROUNDING or high > 1 + ROUNDING:
        scale, offset = (high - low if high > low else 1.0), low
    mapped = np.where(pairs, np.clip((np.where(pairs, value, low) - offset) / scale, 0.0, 1.0), 0.0)
    return (np.where(pairs, 1 - mapped, 0.0), -scale, offset + scale) if flip else (mapped, scale, offset)


def _limit(i: int, threshold: float, scale: float, offset: float, n_layers: int) -> float:
    """The threshold in layered units; raise if it could never bind or never be met."""
    limit = (threshold - offset) / scale
    if not -1e-9 <= limit <= n_layers + 1e-9:
        low, high = sorted((offset, scale * n_layers + offset))
        why = "no policy can meet it" if limit < 0 else "it can never bind"
        raise ValueError(
            f"threshold[{i}] is {threshold:.6g}, outside [{low:.6g}, {high:.6g}], the range that the entries of "
            f"cost[{i}] allow over {n_layers} layers, so that {why}; move it inside."
        )
    return min(max(limit, 0.0), float(n_layers))


def _layered(payoff: np.ndarray, states: list[np.ndarray], n_layers: int) -> np.ndarray:
    """`[H, S, A]` of the source as `[L, S, A]` of the layers; 0 in an added first layer."""
    layered = np.zeros((n_layers, max(map(len, states)), payoff.shape[2]))
    for h, real in enumerate(states, n_layers - len(states)):
        layered[h, : len(real)] = payoff[h - n_layers + len(states), real]
    return layered


def _layered_transition(source: _Source, states: list[np.ndarray], n_layers: int) -> np.ndarray:
    """`[L-1, S, A, S]`; the single action of an added x_0 draws the first state."""
    width, added = max(map(len, states)), n_layers - len(states)
    layered = np.zeros((n_layers - 1, width, source.pairs.shape[2], width))
    for h, (here, there) in enumerate(pairwise(states)):
        layered[h + added, : len(here), :, : len(there)] = source.transition[h][here][:, :, there]
    if added:
        layered[0, 0, 0, : len(states[0])] = source.start[states[0]]
    return layered
