"""Timing the two naive programs on the instance the simulator is timed on."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.cli.bench import naive_numpy, naive_vmap
from cpdpo_jax.cli.bench.simulator import Size, instance, seconds_per_call
from cpdpo_jax.common.types import CMDP
from cpdpo_jax.exact.optimum import solve

CHUNK = 8  # episodes of one call of the vmap program


def model_of(cmdp: CMDP, dtype: Any) -> naive_numpy.Model:
    """A CMDP, as the naive programs want it."""
    payoff = np.concatenate([np.asarray(cmdp.reward)[None], np.asarray(cmdp.cost)])
    transition, threshold = np.asarray(cmdp.transition, dtype), np.asarray(cmdp.threshold, dtype)
    return naive_numpy.Model(transition, payoff.astype(dtype), threshold, float(solve(cmdp).value))


def numpy_seconds(size: Size, seconds: float) -> float:
    """Seconds per episode of one seed."""
    cmdp = instance(size)
    learner = naive_numpy.Naive(model_of(cmdp, float), naive_numpy.constants(size, float(solve(cmdp).slater_margin)))
    rng = np.random.default_rng(0)

    def play() -> None:
        learner.episode(rng.random((size.layers, 3 + size.constraints)))

    play()
    return seconds_per_call(play, seconds)


def vmap_seconds(size: Size, seeds: int, seconds: float) -> tuple[float, float]:
    """Seconds of compilation (less if it is in the cache), and per episode of all seeds together."""
    cmdp = instance(size)
    model = jax.tree.map(jnp.asarray, model_of(cmdp, np.float32))
    constants = naive_numpy.constants(size, float(solve(cmdp).slater_margin))
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
