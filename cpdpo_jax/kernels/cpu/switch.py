"""The one switch of all that exists only for speed on a CPU, and the one warning where it can not be used.

The choice is made while a program is traced and is part of what tells compiled programs apart:
`with cpu_acceleration(False):` never meets a program made outside of it.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import jax

from cpdpo_jax.kernels.target import for_accelerator

VARIABLE = "CPDPO_CPU_ACCELERATION"

_ENABLED = jax.make_user_context(os.environ.get(VARIABLE, "1").strip().lower() not in ("0", "false", "off", "no"))


def cpu_acceleration(enabled: bool) -> Any:
    """A context that turns all that exists only for speed on a CPU on or off: to compare the two, or to lower for a
    device that is not here. Outside of every context the environment variable CPDPO_CPU_ACCELERATION decides (0: off).
    """
    return _ENABLED(bool(enabled))


def cpu_acceleration_enabled() -> bool:
    """Whether a program traced here is for a CPU and may be made for it alone."""
    return bool(_ENABLED.value) and not for_accelerator()


def warn_once(subject: str, message: str) -> None:
    """One RuntimeWarning a subject in the life of a process, whatever the reason is the second time."""
    if subject not in _WARNED:
        _WARNED.add(subject)
        warnings.warn(message, RuntimeWarning, stacklevel=3)


def nothing_is_missing() -> bool:
    """Whether what this process has compiled is what another one would."""
    return not _WARNED


_WARNED: set[str] = set()
