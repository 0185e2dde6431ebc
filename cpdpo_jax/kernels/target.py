"""For which kind of device a program is traced: a few forms that are the better ones on a CPU are the worse on a GPU.

A CPU wants work skipped and arrays in its cache; an accelerator wants few kernels and no question that its host must
answer (a `lax.cond`, a loop whose length it does not know). Both forms give the same numbers up to rounding.
"""

from __future__ import annotations

import os
from typing import Any

import jax

MAX_STATES = 16  # of a layer whose sums over pairs of next states are written out on an accelerator; others loop

VARIABLE = "CPDPO_TARGET"

_TARGET = jax.make_user_context(os.environ.get(VARIABLE, "").strip().lower())  # "": the device that jax runs on


def tracing_for(platform: str) -> Any:
    """A context in which programs are traced for `platform` ("gpu", say), whatever device is here.

    To compile for a device that is absent (`cpdpo bench --part device --target h100`), or to run its form on a CPU.
    Of this thread alone; CPDPO_TARGET=gpu in the environment holds for a whole process, `cpdpo run` for one.
    """
    return _TARGET(platform)


def target_platform() -> str:
    """The platform that a program traced here is for."""
    return _TARGET.value or jax.default_backend()


def unrolls_states(n_states: int) -> bool:
    """Whether a program traced here is for an accelerator, and layers of so many states get its forms."""
    return for_accelerator() and n_states <= MAX_STATES


def for_accelerator() -> bool:
    """Whether a program traced here is for a GPU or TPU."""
    return target_platform() != "cpu"
