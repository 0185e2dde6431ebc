"""Build and validate CMDPs on the host; stack several of one shape into a batch.

Every error is a one-sentence `ValueError` with field, index, value and remedy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cpdpo_jax.common.types import CMDP, Units

NOISES = ("bernoulli", "deterministic", "beta")
ROW_TOLERANCE = 1e-6  # rows that sum to 1 within this are renormalised
ROUNDING = 1e-12  # values outside their range by less than this are clipped


def make_cmdp(
    transition: Any,
    reward: Any,
    cost: Any,
    threshold: Any,
    *,
    action_mask: Any = None,
    state_mask: Any = None,
    noise: str = "bernoulli",
    concentration: float = 10.0,
    name: str | None = None,
    units: Units | None = None,
) -> CMDP:
    """Build a loop-free episodic CMDP (Section 3.1) from arrays. CMDPs are validated here and nowhere else.

    State 0 of layer 0 is x_0. Entries at padded states and actions are ignored and set to 0.

    Args:
        transition: `[L-1, S, A, S]`, P(x'|x,a) from layer k to k+1; the step to x_L is implicit. None or empty for L=1.
        reward: `[L, S, A]`, mean rewards in [0, 1].
        cost: `[M, L, S, A]`, mean costs in [0, 1].
        threshold: `[M]`, alpha in [0, L]; the constraints are V(g_i) <= alpha_i.
        action_mask: `[L, S, A]` bool, True where an action is allowed; None allows all.
        state_mask: `[L, S]` bool, True for real states; None: x_0, and later every state with an allowed action.
        noise: the distribution of the samples around their mean: "bernoulli", "deterministic" or "beta".
        concentration: c of the "beta" noise, Beta(c mean, c (1 - mean)).
        name: shown in tables and errors.
        units: the map back to the units of the source; None: the arrays are in the units of the source.

    Returns:
        A `CMDP` of float64 NumPy arrays without batch axes.
    """
    reward = to_array("reward", reward)
    if reward.ndim != 3 or 0 in reward.shape:
        raise ValueError(f"reward has shape {reward.shape}; give [L, S, A] with every size at least 1.")
    n_layers, n_states, n_actions = reward.shape
    cost, threshold = to_array("cost", cost), to_array("threshold", threshold)
    if cost.ndim != 4 or cost.shape[0] == 0:
        raise ValueError(
            f"cost has shape {cost.shape}; give [M, L, S, A] with M at least 1 (one constraint: cost[None]; "
            "none: zeros with threshold L)."
        )
    meaning = f"[M, L, S, A], where reward has the shape {reward.shape}"
    check_shape("cost", cost, (len(cost), n_layers, n_states, n_actions), meaning)
    check_shape("threshold", threshold, (len(cost),), "[M], one number for each constraint of cost")
    if n_layers == 1 and (transition is None or np.size(transition) == 0):
        transition = np.zeros((0, n_states, n_actions, n_states))
    transition = to_array("transition", transition)
    shape = (n_layers - 1, n_states, n_actions, n_states)
    check_shape("transition", transition, shape, "[L-1, S, A, S] with reward's L, S, A")

    states, actions = _masks(action_mask, state_mask, reward.shape)
    into_padding = (np.abs(transition) > ROUNDING) & actions[:-1, ..., None] & ~states[1:, None, None, :]
    if into_padding.any():
        k, x, a, y = first(into_padding)
        raise ValueError(
            f"transition[{k}, {x}, {a}, {y}] is {transition[k, x, a, y]:.6g}, but state {y} of layer {k + 1} is "
            "padding (masked, or without an allowed action); make it 0 or unmask the state."
        )
    if noise not in NOISES:
        raise ValueError(f"noise is {noise!r}; choose one of {', '.join(NOISES)}.")
    if not (np.ndim(concentration) == 0 and 0 < concentration < np.inf):
        raise ValueError(f"concentration is {concentration!r}; give one positive finite number.")
    return CMDP(
        transition=clean_rows("transition", transition, actions[:-1]),
        reward=clean_range("reward", reward, actions, 1.0),
        cost=clean_range("cost", cost, np.broadcast_to(actions, cost.shape), 1.0),
        threshold=clean_range("threshold", threshold, np.ones(threshold.shape, bool), n_layers, "L"),
        action_mask=actions,
        concentration=np.asarray(concentration, np.float64),
        units=_units(units, len(cost)),
        noise=noise,
        names=("cmdp" if name is None else str(name),),
    )


def stack(cmdps: Sequence[CMDP]) -> CMDP:
    """Join CMDPs of equal shape and noise into a batch along a new last axis; batches are flattened first."""
    flat = [instance for cmdp in cmdps for instance in unstack(cmdp)]
    if not flat:
        raise ValueError("cmdps is empty; give at least one CMDP.")
    for i, cmdp in enumerate(flat):
        for field in ("reward", "cost"):
            shape, expected = getattr(cmdp, field).shape, getattr(flat[0], field).shape
            if shape != expected:
                raise ValueError(
                    f"cmdps[{i}].{field} ({cmdp.name}) has shape {shape}, but cmdps[0].{field} has {expected}; "
                    "stack CMDPs of the same shape, or pad the smaller ones with masks."
                )
        if cmdp.noise != flat[0].noise:
            raise ValueError(
                f"cmdps[{i}].noise ({cmdp.name}) is {cmdp.noise!r}, but cmdps[0].noise is {flat[0].noise!r}; "
                "stack CMDPs with the same noise."
            )
        if cmdp.unit_names != flat[0].unit_names:
            raise ValueError(
                f"cmdps[{i}] ({cmdp.name}) is in {cmdp.unit_names or 'units without names'}, but cmdps[0] in "
                f"{flat[0].unit_names or 'units without names'}; stack CMDPs of the same units."
            )
    names = tuple(cmdp.name for cmdp in flat)
    return _map(lambda *leaves: np.stack(leaves, axis=-1), flat, names)


def unstack(cmdp: CMDP) -> list[CMDP]:
    """Split a batch into its CMDPs, in order; a CMDP without batch axes gives a list with itself."""
    if not cmdp.batch_shape:
        return [cmdp]
    axes, n = len(cmdp.batch_shape), int(np.prod(cmdp.batch_shape))
    names = cmdp.names if len(cmdp.names) == n else cmdp.names[:1] * n

    def take(leaf: np.ndarray, i: int) -> np.ndarray:
        lead = leaf.shape[: leaf.ndim - axes]
        return np.array(np.broadcast_to(leaf, lead + cmdp.batch_shape).reshape(*lead, n)[..., i])

    return [_map(lambda leaf, i=i: take(leaf, i), [cmdp], (names[i],)) for i in range(n)]


def _map(function: Any, cmdps: Sequence[CMDP], names: tuple[str, ...]) -> CMDP:
    """Apply a function to each array of the CMDPs, which may differ in their names."""
    fields = ("transition", "reward", "cost", "threshold", "action_mask", "concentration")
    arrays = {field: function(*(np.asarray(getattr(cmdp, field)) for cmdp in cmdps)) for field in fields}
    units = Units(*(function(*map(np.asarray, leaves)) for leaves in zip(*(cmdp.units for cmdp in cmdps), strict=True)))
    return replace(cmdps[0], **arrays, units=units, names=names)


def _masks(action_mask: Any, state_mask: Any, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Real states `[L, S]` and their allowed actions `[L, S, A]`, checked."""
    actions = np.ones(shape, bool) if action_mask is None else to_mask("action_mask", action_mask, shape, "[L, S, A]")
    if state_mask is None:
        states = np.asarray(actions.any(axis=2))
        states[0, 1:] = False
    else:
        states = to_mask("state_mask", state_mask, shape[:2], "[L, S]")
        if states[0].sum() > 1:
            x = int(np.flatnonzero(states[0])[1])
            raise ValueError(
                f"state_mask[0, {x}] is True, but the first layer has only one state, x_0 = state 0; mask the "
                "others, or give from_episodic an initial distribution."
            )
        idle = states & ~actions.any(axis=2)
        if idle.any():
            k, x = first(idle)
            raise ValueError(
                f"action_mask[{k}, {x}] is all False, but state_mask[{k}, {x}] is True: a real state needs an allowed "
                "action; allow one or mask the state."
            )
    if not states[0, 0]:
        field = "action_mask" if state_mask is None else "state_mask"
        raise ValueError(
            f"{field}[0, 0] is False, but state 0 of layer 0 is x_0, where every episode starts; unmask it."
        )
    empty = np.asarray(~states.any(axis=1))
    if empty.any():
        field, k = "action_mask" if state_mask is None else "state_mask", first(empty)[0]
        raise ValueError(
            f"{field}[{k}] is all False, so layer {k} is empty; leave it at least one state with an action."
        )
    return states, actions & states[..., None]


def _units(units: Units | None, n_constraints: int) -> Units:
    """The given units as float64 arrays, or the identity."""
    m = (n_constraints,)
    if units is None:
        units = Units(1.0, 0.0, np.ones(m), np.zeros(m))  # pyright: ignore[reportArgumentType]
    units = Units(*(to_array(f"units.{field}", value) for field, value in zip(Units._fields, units, strict=True)))
    for field, value, shape in zip(Units._fields, units, ((), (), m, m), strict=True):
        check_shape(f"units.{field}", np.asarray(value), shape, "a number for the reward, [M] for the costs")
        if not np.isfinite(value).all():
            raise ValueError(f"units.{field} is {value}; give finite numbers.")
    return units


def to_array(field: str, value: Any) -> np.ndarray:
    """A float64 copy of what the user gave for a field."""
    try:
        return np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{field} is not an array of numbers ({error}); give a rectangular array.") from error


def to_mask(field: str, value: Any, shape: tuple[int, ...], axes: str) -> np.ndarray:
    """A bool copy of a mask of the given shape."""
    mask = to_array(field, value)
    check_shape(field, mask, shape, axes)
    wrong = (mask != 0) & (mask != 1)
    if wrong.any():
        index = first(wrong)
        raise ValueError(f"{field}{[*index]} is {mask[index]:.6g}; give True or False.")
    return mask.astype(bool)


def check_shape(field: str, value: np.ndarray, shape: tuple[int, ...], axes: str) -> None:
    """Raise unless the field has the shape."""
    if value.shape != shape:
        raise ValueError(f"{field} has shape {value.shape}, expected {shape}; give {axes}.")


def clean_range(field: str, value: np.ndarray, mask: np.ndarray, top: float, top_name: str = "") -> np.ndarray:
    """The field with 0 outside the mask; raise if an entry inside it is not in [0, top]."""
    wrong = mask & ~((value >= -ROUNDING) & (value <= top + ROUNDING))  # also true of NaN
    if wrong.any():
        index = first(wrong)
        limit = f"{top_name} = {top:g}" if top_name else f"{top:g}"
        raise ValueError(
            f"{field}{[*index]} is {value[index]:.6g}, outside [0, {limit}]; rescale it, or let from_episodic do so."
        )
    return np.where(mask, np.clip(value, 0.0, top), 0.0)


def clean_rows(field: str, rows: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Probability rows (last axis), renormalised, with 0 outside the mask; raise if a row inside is invalid."""
    wrong = mask[..., None] & ~(rows >= -ROUNDING)  # also true of NaN
    if wrong.any():
        index = first(wrong)
        raise ValueError(f"{field}{[*index]} is {rows[index]:.6g}; give a probability, at least 0.")
    rows = np.where(mask[..., None], np.maximum(rows, 0.0), 0.0)
    total = rows.sum(axis=-1)
    wrong = mask & ~(np.abs(total - 1) <= ROW_TOLERANCE)
    if wrong.any():
        index = first(wrong)
        raise ValueError(
            f"{field}{[*index] if index else ''} sums to {total[index]:.6g}; make it sum to 1, "
            "or mask the action if it is padding."
        )
    return rows / np.where(mask, total, 1.0)[..., None]


def first(wrong: np.ndarray) -> tuple[int, ...]:
    """The first index at which the array is True."""
    return tuple(int(i) for i in np.argwhere(wrong)[0])
