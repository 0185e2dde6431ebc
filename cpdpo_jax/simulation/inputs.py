"""Checking what `simulate` is given, at the edge: one sentence with the field, the value and the remedy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from cpdpo_jax.common.types import CMDP
from cpdpo_jax.envs.build import stack
from cpdpo_jax.envs.registry import make
from cpdpo_jax.exact.optimum import Solution, evaluate
from cpdpo_jax.learners import cpdpo
from cpdpo_jax.learners.base import Learner
from cpdpo_jax.learners.fixed import UNIFORM
from cpdpo_jax.simulation import monitor
from cpdpo_jax.simulation.blocks import Phase

FIRST_DOUBLING = 1024  # episodes of the first phase when T is unknown
MOST_EPISODES = 2**31 - 1  # counts are int32
PER_DECADE = 20  # checkpoints of "log"


def batch(cmdp: str | CMDP | Sequence[CMDP]) -> CMDP:
    """A batch of instances, whatever was given: an environment's name, an .npz file, a CMDP, a batch or a list."""
    if isinstance(cmdp, str):
        cmdp = make(cmdp)
    if isinstance(cmdp, CMDP):
        return cmdp if cmdp.batch_shape else stack([cmdp])
    if isinstance(cmdp, (list, tuple)) and cmdp and all(isinstance(one, CMDP) for one in cmdp):
        return stack(cmdp)
    raise ValueError(f"cmdp is a {type(cmdp).__name__}; give an environment's name, a CMDP, a batch or a list.")


def positive(name: str, value: Any) -> int:
    """A whole number of at least 1 that int32 counts can hold."""
    if isinstance(value, bool) or int(value) != value or not 1 <= value <= MOST_EPISODES:
        raise ValueError(f"{name} = {value!r} is not a whole number from 1 to {MOST_EPISODES}.")
    return int(value)


def seeds(value: int | Sequence[int]) -> np.ndarray:
    """The seeds' numbers."""
    if np.ndim(value) == 0:
        return np.arange(positive("seeds", value))
    numbers = np.asarray(value)
    if numbers.size == 0 or numbers.dtype.kind not in "iu" or (numbers < 0).any() or (numbers >= 2**32).any():
        raise ValueError(f"seeds = {value!r} are not whole numbers from 0 to 2^32-1; give how many, or a list of them.")
    if len(set(numbers.tolist())) < numbers.size:
        raise ValueError(f"seeds = {value!r} has a seed twice; its two runs would be the same.")
    return numbers


def checkpoints(value: int | str | Sequence[int], episodes: int) -> np.ndarray:
    """The episodes at which curves have a point, increasing, `episodes` last."""
    if isinstance(value, str):
        if value != "log":
            raise ValueError(f"checkpoints = {value!r} is not known; give 'log', a number of points, or the episodes.")
        n = max(2, round(PER_DECADE * np.log10(episodes)))
        points = np.unique(np.geomspace(1, episodes, n).round().astype(np.int64))
    elif np.ndim(value) == 0:
        n = positive("checkpoints", value)
        points = np.unique(np.linspace(0, episodes, min(n, episodes) + 1)[1:].round().astype(np.int64))
    else:
        points = np.unique(np.asarray(value, np.int64))
        if points.size == 0 or points[0] < 1 or points[-1] > episodes:
            raise ValueError(f"checkpoints = {value!r} are not all from 1 to episodes = {episodes}.")
    return points if points[-1] == episodes else np.append(points, episodes)


def dtype(value: Any) -> np.dtype:
    """float32 or float64; the latter only if jax computes in it."""
    try:
        chosen = np.dtype(value)
    except TypeError:
        chosen = np.dtype(object)
    if chosen not in (np.dtype("float32"), np.dtype("float64")):
        raise ValueError(f"dtype = {value!r} is not known; give 'float32' or 'float64'.")
    if chosen == np.dtype("float64") and not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise ValueError("dtype = 'float64' needs jax.config.update('jax_enable_x64', True) before the first array.")
    return chosen


def slater_margin(rho: Any, cmdp: CMDP, solution: Solution, learners: list[Learner]) -> tuple[np.ndarray, int]:
    """The margin each instance's learner believes, [instances], and how many first episodes estimate it instead."""
    true, explored = np.asarray(solution.slater_margin), 0
    if isinstance(rho, str) and rho.startswith("estimate:") and rho[9:].isdigit() and int(rho[9:]) > 0:
        return np.ones_like(true), int(rho[9:])
    if isinstance(rho, str):
        if rho != "solve":
            raise ValueError(f"rho = {rho!r} is not known; give 'solve', a positive number, or 'estimate:1000'.")
        needing = [one.name for one in learners if one.needs_slater]
        short = np.flatnonzero(true <= 1e-9)
        if needing and len(short):
            raise ValueError(
                f"learner {needing[0]!r} needs a strictly feasible policy, and instance {cmdp.names[short[0]]!r} has "
                f"Slater margin rho = {true[short[0]]:.3g}; loosen its thresholds, or give rho = a positive number."
            )
        return np.where(true > 1e-9, true, 1.0), explored
    margin = np.broadcast_to(np.asarray(rho, float), true.shape)
    if not (np.isfinite(margin) & (margin > 0)).all():
        raise ValueError(f"rho = {rho!r} is not positive; CPD-PO needs the Slater margin to be above 0.")
    return margin, explored


def phases(learner: Learner, episodes: int, explored: int, horizon: str) -> list[Phase]:
    """The stretches of a run: exploring first if rho is to be estimated, then one, or doubling ones if T is unknown."""
    stretches = [Phase(UNIFORM, 0, explored, explored, explores=True)] if explored else []
    if horizon == "known":
        return [*stretches, Phase(learner, explored, episodes, episodes - explored)]
    if horizon != "doubling":
        raise ValueError(f"horizon = {horizon!r} is not known; give 'known' or 'doubling'.")
    first, length = explored, FIRST_DOUBLING
    while first < episodes:
        stretches.append(Phase(learner, first, min(first + length, episodes), length))
        first, length = first + length, 2 * length
    return stretches


def truth(watch: bool, learner: Learner, cmdp: CMDP, solution: Solution) -> monitor.Truth | None:
    """What the monitor needs of the optimum, [instances]; None without a monitor."""
    if not watch:
        return None
    if learner is not cpdpo.LEARNER:
        raise ValueError(f"monitor = True watches CPD-PO's analysis; leave it off for learner {learner.name!r}.")
    cost = [
        evaluate(cmdp.transition[..., b], solution.policy[..., b], cmdp.cost[..., b])
        for b in range(cmdp.batch_shape[0])
    ]
    return monitor.Truth(slater_margin=np.asarray(solution.slater_margin), optimum_cost=np.stack(cost, axis=-1))
