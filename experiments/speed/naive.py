"""Timings of the two naive programs on the simulator's instance."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import cpdpo_jax as cp
from experiments.speed import naive_numpy, naive_vmap
from experiments.speed.timing import HORIZON, Size, instance, seconds_per_call

CHUNK = 8  # episodes per call of the vmap program


def model_of(cmdp: cp.CMDP, dtype: Any) -> naive_numpy.Model:
    """The arrays of a CMDP that the naive programs use."""
    payoff = np.concatenate([np.asarray(cmdp.reward)[None], np.asarray(cmdp.cost)])
    transition, threshold = np.asarray(cmdp.transition, dtype), np.asarray(cmdp.threshold, dtype)
    return naive_numpy.Model(transition, payoff.astype(dtype), threshold, float(cp.solve(cmdp).value))


def _problem(size: Size, dtype: Any) -> tuple[naive_numpy.Model, naive_numpy.Constants]:
    cmdp = instance(size)
    return model_of(cmdp, dtype), naive_numpy.constants(size, float(cp.solve(cmdp).slater_margin), HORIZON)


def numpy_seconds(size: Size, seconds: float) -> float:
    """Seconds per episode of one seed."""
    learner = naive_numpy.Naive(*_problem(size, float))
    rng = np.random.default_rng(0)

    def play() -> None:
        learner.episode(rng.random((size.layers, 3 + size.constraints)))

    play()
    return seconds_per_call(play, seconds)


def vmap_seconds(size: Size, seeds: int, seconds: float) -> tuple[float, float]:
    """Seconds of compilation (less if it is cached), and per episode of all seeds together."""
    model, constants = _problem(size, np.float32)
    model = jax.tree.map(jnp.asarray, model)
    keys = jax.vmap(jax.random.key)(jnp.arange(seeds))
    states = jax.tree.map(lambda leaf: jnp.stack([leaf] * seeds), naive_vmap.start(model))
    at = 0

    def play() -> None:
        nonlocal states, at
        states = jax.block_until_ready(naive_vmap.advance(model, constants, keys, states, jnp.int32(at), CHUNK))
        at += CHUNK

    started = time.perf_counter()
    play()
    first = time.perf_counter() - started
    spent = seconds_per_call(play, seconds)
    return max(first - spent, 0.0), spent / CHUNK
