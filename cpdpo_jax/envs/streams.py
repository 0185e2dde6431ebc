"""Random families draw each instance from its own stream, which depends on (key, instance) alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cpdpo_jax.common.types import CMDP
from cpdpo_jax.envs.build import stack
from cpdpo_jax.envs.parameters import integer


def stream(key: int, instance: int) -> np.random.Generator:
    """The instance's own generator: PCG64 seeded with the pair (key, instance)."""
    return np.random.Generator(np.random.PCG64([integer("key", key, 0), instance]))


def drawn(draw: Callable[[np.random.Generator, str], CMDP], name: str, key: int, instances: int | None) -> CMDP:
    """Instance 0 of the key alone, or instances 0..n-1 as a batch; their number does not affect an instance."""
    return join([draw(stream(key, i), label(name, key, i)) for i in indices(instances)], instances)


def indices(instances: int | None) -> range:
    """The instances to draw: 0 alone, or 0..n-1."""
    return range(1 if instances is None else integer("instances", instances, 1))


def join(cmdps: list[CMDP], instances: int | None) -> CMDP:
    """One CMDP if the number of instances is None, else a batch."""
    return cmdps[0] if instances is None else stack(cmdps)


def label(name: str, key: Any, instance: int) -> str:
    """The instance's name in tables."""
    return f"{name}(key={key})[{instance}]"
