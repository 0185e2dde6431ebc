"""Validates the arguments of `simulate`; each error names the field, the value and the remedy."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from cpdpo_jax.common.text import shown
from cpdpo_jax.common.types import CMDP
from cpdpo_jax.envs import registry
from cpdpo_jax.envs.build import stack
from cpdpo_jax.envs.registry import make
from cpdpo_jax.exact.optimum import Solution
from cpdpo_jax.learners import base
from cpdpo_jax.learners.base import Learner
from cpdpo_jax.simulation.options import integer

PER_DECADE = 20  # checkpoints of "log"


def batch(cmdp: str | CMDP | Sequence[CMDP]) -> CMDP:
    """A batch of instances from an environment's name, an .npz file, a CMDP, a batch or a list."""
    if isinstance(cmdp, str):
        refuse_learner_name(cmdp)
        cmdp = make(cmdp)
    if isinstance(cmdp, CMDP):
        return cmdp if cmdp.batch_shape else stack([cmdp])
    if isinstance(cmdp, (list, tuple)) and cmdp and all(isinstance(item, CMDP) for item in cmdp):
        return stack(cmdp)
    raise ValueError(f"cmdp is a {type(cmdp).__name__}; give an environment's name, a CMDP, a batch or a list.")


def refuse_rank_promotion() -> None:
    """Raise within `jax.numpy_rank_promotion("raise")` or "warn", which could not reach the learner.

    A setting of the whole process (JAX_NUMPY_RANK_PROMOTION, jax.config.update) is for the user's own program.
    """
    with ThreadPoolExecutor(1) as fresh:  # a new thread has the process's value
        process = fresh.submit(_rank_promotion).result()
    if _rank_promotion() not in ("allow", process):
        raise ValueError(
            f"jax.numpy_rank_promotion({_rank_promotion()!r}) cannot apply to a learner, because the batch is the last "
            "axis and arrays of different rank are meant to broadcast; call it outside of this context."
        )


def _rank_promotion() -> str:
    return jax.config.jax_numpy_rank_promotion  # pyright: ignore[reportAttributeAccessIssue]


def refuse_learner_name(environment: str) -> None:
    """Raise if a learner's name is given as the environment."""
    if environment in base.names() and environment not in registry.names():
        raise ValueError(f"{shown(environment)} is a learner; give an environment instead, such as 'random'.")


def seeds(value: int | Sequence[int]) -> np.ndarray:
    """The seeds as an array of integers."""
    if np.ndim(value) == 0:
        return np.arange(integer("seeds", value))
    numbers = np.asarray(value)
    if (
        numbers.ndim != 1
        or numbers.size == 0
        or numbers.dtype.kind not in "iu"
        or (numbers < 0).any()
        or (numbers >= 2**32).any()
    ):
        raise ValueError(
            f"seeds = {shown(value)} are not integers from 0 to 2^32-1; give a number of seeds, or a list of seeds."
        )
    if len(set(numbers.tolist())) < numbers.size:
        raise ValueError(f"seeds = {shown(value)} contains a seed twice; give each seed once.")
    return numbers


def checkpoints(value: int | str | Sequence[int], episodes: int) -> np.ndarray:
    """The episodes of the checkpoints, in increasing order and ending with `episodes`."""
    if value == "log":
        n = max(2, round(PER_DECADE * np.log10(episodes)))
        points = np.unique(np.geomspace(1, episodes, n).round().astype(np.int64))
    elif isinstance(value, int):
        points = np.unique(np.linspace(0, episodes, min(value, episodes) + 1)[1:].round().astype(np.int64))
    else:
        points = np.unique(np.asarray(value, np.int64))
        if points[-1] > episodes:
            raise ValueError(
                f"checkpoints = {shown(value)} exceed episodes = {episodes}; give episodes from 1 to {episodes}."
            )
    return points if points[-1] == episodes else np.append(points, episodes)


def slater_margin(rho: Any, cmdp: CMDP, solution: Solution, learners: list[Learner]) -> tuple[np.ndarray, int]:
    """The Slater margins given to the learner, [instances], and the number of initial episodes that estimate rho."""
    true = np.asarray(solution.slater_margin)
    if isinstance(rho, str) and rho.startswith("estimate:"):
        return np.ones_like(true), int(rho.removeprefix("estimate:"))
    if isinstance(rho, str):
        dependent = [learner.name for learner in learners if learner.needs_slater]
        short = np.flatnonzero(true <= 1e-9)
        if dependent and len(short):
            raise ValueError(
                f"learner {dependent[0]!r} needs a strictly feasible policy, and instance {cmdp.names[short[0]]!r} has "
                f"Slater margin rho = {true[short[0]]:.3g}; loosen its thresholds, or give a positive rho."
            )
        return np.where(true > 1e-9, true, 1.0), 0
    margin = np.asarray(rho["per_instance"] if isinstance(rho, dict) else rho, float)
    if margin.ndim and margin.shape != true.shape:
        raise ValueError(
            f"rho = {shown(rho)} has {len(margin)} margins for {len(true)} instances; give one each, or a list for an "
            "axis."
        )
    return np.broadcast_to(margin, true.shape), 0
