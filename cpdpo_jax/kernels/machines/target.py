"""Contexts for tracing: the target platform, and whether only the paper's forms of the kernels are used.

`tracing_for("gpu")` traces programs for a device that need not be present; `paper_forms()` selects the paper's forms,
for comparison with the fast ones. Both are part of the keys of compiled programs.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

import jax

TARGET_VARIABLE = "CPDPO_TARGET"
PAPER_VARIABLE = "CPDPO_PAPER_FORMS"


class _PlainContext:
    """A substitute for `jax.make_user_context` in versions without it; not part of the keys of jax's own caches."""

    def __init__(self, default: Any) -> None:
        self._value = ContextVar("cpdpo_jax", default=default)

    @property
    def value(self) -> Any:
        return self._value.get()

    @contextmanager
    def __call__(self, value: Any) -> Iterator[None]:
        token = self._value.set(value)
        try:
            yield
        finally:
            self._value.reset(token)


def _is_on(variable: str, default: str) -> bool:
    return os.environ.get(variable, default).strip().lower() not in ("", "0", "false", "off", "no")


_make: Callable[[Any], Any] = getattr(jax, "make_user_context", _PlainContext)
_TARGET = _make(os.environ.get(TARGET_VARIABLE, "").strip().lower())  # "" means jax's default backend
_PAPER = _make(_is_on(PAPER_VARIABLE, "0"))


def tracing_for(platform: str) -> AbstractContextManager[None]:
    """A context in which programs are traced for `platform` ("cpu", "gpu", ...), whatever devices are present.

    It applies to the current thread; the environment variable CPDPO_TARGET=gpu applies to a process.
    """
    return _TARGET(platform)


def paper_forms(enabled: bool = True) -> AbstractContextManager[None]:
    """A context in which programs use the paper's form of every kernel, in pure JAX, on every target.

    It applies to the current thread; the environment variable CPDPO_PAPER_FORMS=1 applies to a process.
    """
    return _PAPER(bool(enabled))


def cpu_acceleration(enabled: bool) -> AbstractContextManager[None]:
    """Deprecated: `paper_forms(not enabled)`."""
    warnings.warn("cpu_acceleration(x) is now paper_forms(not x).", DeprecationWarning, stacklevel=2)
    return paper_forms(not enabled)


def target_platform() -> str:
    """The platform for which programs are traced in this context."""
    return _TARGET.value or jax.default_backend()


def for_accelerator() -> bool:
    """Whether programs are traced for an accelerator (GPU or TPU)."""
    return target_platform() != "cpu"


def only_paper_forms() -> bool:
    """Whether programs use the paper's forms only."""
    return bool(_PAPER.value)


def program_key() -> tuple[str, bool]:
    """The contexts as part of a compiled program's key."""
    return target_platform(), only_paper_forms()


def contexts() -> dict[str, Any]:
    """The values of both contexts in this thread, to be passed to `apply_contexts` in another thread."""
    return {"target": _TARGET.value, "paper_forms": _PAPER.value}


@contextmanager
def apply_contexts(values: Mapping[str, Any]) -> Iterator[None]:
    """Set the values of `contexts()` in this thread, except those that it has already."""
    with ExitStack() as stack:
        for name, context in (("target", _TARGET), ("paper_forms", _PAPER)):
            if values.get(name, context.value) != context.value:
                stack.enter_context(context(values[name]))
        yield
