"""Checking what `simulate` is given, at the edge: one sentence with the field, the value and the remedy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cpdpo_jax.common.types import CMDP
from cpdpo_jax.envs import registry
from cpdpo_jax.envs.build import stack
from cpdpo_jax.envs.registry import make
from cpdpo_jax.exact.optimum import Solution
from cpdpo_jax.learners import base
from cpdpo_jax.learners.base import Learner
from cpdpo_jax.simulation.options import whole

PER_DECADE = 20  # checkpoints of "log"


def batch(cmdp: str | CMDP | Sequence[CMDP]) -> CMDP:
    """A batch of instances, whatever was given: an environment's name, an .npz file, a CMDP, a batch or a list."""
    if isinstance(cmdp, str):
        no_learner(cmdp)
        cmdp = make(cmdp)
    if isinstance(cmdp, CMDP):
        return cmdp if cmdp.batch_shape else stack([cmdp])
    if isinstance(cmdp, (list, tuple)) and cmdp and all(isinstance(one, CMDP) for one in cmdp):
        return stack(cmdp)
    raise ValueError(f"cmdp is a {type(cmdp).__name__}; give an environment's name, a CMDP, a batch or a list.")


def no_learner(environment: str) -> None:
    """A learner's name where an environment's should be is told as such."""
    if environment in base.names() and environment not in registry.names():
        raise ValueError(f"{environment!r} is a learner; give an environment in its place, such as 'random'.")


def seeds(value: int | Sequence[int]) -> np.ndarray:
    """The seeds' numbers."""
    if np.ndim(value) == 0:
        return np.arange(whole("seeds", value))
    numbers = np.asarray(value)
    if (
        numbers.ndim != 1
        or numbers.size == 0
        or numbers.dtype.kind not in "iu"
        or (numbers < 0).any()
        or (numbers >= 2**32).any()
    ):
        raise ValueError(f"seeds = {value!r} are not whole numbers from 0 to 2^32-1; give how many, or a list of them.")
    if len(set(numbers.tolist())) < numbers.size:
        raise ValueError(f"seeds = {value!r} has a seed twice; its two runs would be the same.")
    return numbers


def checkpoints(value: int | str | Sequence[int], episodes: int) -> np.ndarray:
    """The episodes at which curves have a point, increasing, `episodes` last."""
    if value == "log":
        n = max(2, round(PER_DECADE * np.log10(episodes)))
        points = np.unique(np.geomspace(1, episodes, n).round().astype(np.int64))
    elif isinstance(value, int):
        points = np.unique(np.linspace(0, episodes, min(value, episodes) + 1)[1:].round().astype(np.int64))
    else:
        points = np.unique(np.asarray(value, np.int64))
        if points[-1] > episodes:
            raise ValueError(f"checkpoints = {value!r} are not all from 1 to episodes = {episodes}.")
    return points if points[-1] == episodes else np.append(points, episodes)


def slater_margin(rho: Any, cmdp: CMDP, solution: Solution, learners: list[Learner]) -> tuple[np.ndarray, int]:
    """The margin each instance's learner believes, [instances], and how many first episodes estimate it instead."""
    true = np.asarray(solution.slater_margin)
    if isinstance(rho, str) and rho.startswith("estimate:"):
        return np.ones_like(true), int(rho.removeprefix("estimate:"))
    if isinstance(rho, str):
        needing = [learner.name for learner in learners if learner.needs_slater]
        short = np.flatnonzero(true <= 1e-9)
        if needing and len(short):
            raise ValueError(
                f"learner {needing[0]!r} needs a strictly feasible policy, and instance {cmdp.names[short[0]]!r} has "
                f"Slater margin rho = {true[short[0]]:.3g}; loosen its thresholds, or give rho = a positive number."
            )
        return np.where(true > 1e-9, true, 1.0), 0
    margin = np.asarray(rho, float)
    if margin.ndim and margin.shape != true.shape:
        raise ValueError(f"rho = {rho!r} has {len(margin)} margins for {len(true)} instances; give one, or one each.")
    return np.broadcast_to(margin, true.shape), 0
