"""For which kind of device a program is traced: a few forms that are the better ones on a CPU are the worse on a GPU.

A CPU wants work skipped and arrays in its cache; an accelerator wants few kernels and no question that its host must
answer (a `lax.cond`, a loop whose length it does not know). Both forms give the same numbers up to rounding.
"""

from __future__ import annotations

from typing import Any

import jax

_TARGET = jax.make_user_context("")  # "": the device that jax runs on


def tracing_for(platform: str) -> Any:
    """A context in which programs are traced for `platform` ("gpu", say), whatever device is here.

    To compile for a device that is absent (`cpdpo bench --part device --target h100`), or to run its form on a CPU.
    """
    return _TARGET(platform)


def target_platform() -> str:
    """The platform that a program traced here is for."""
    return _TARGET.value or jax.default_backend()


def for_accelerator() -> bool:
    """Whether a program traced here is for a GPU or TPU."""
    return target_platform() != "cpu"
