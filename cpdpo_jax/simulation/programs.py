"""Compiled programs of learners, kept as long as their learner is.

A learner given to `jax.jit` as a static argument would be kept for ever, and its programs (5 to 8 MB) with it.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from cpdpo_jax.learners.base import Learner


class LearnerProgram:
    """function(learner, ...), compiled for each learner by itself; `options` are those of `jax.jit` without it.

    `otherwise` takes over for good where XLA has no code for what a learner does: it says so when it compiles. Who
    wrote the learner is told once.
    """

    def __init__(
        self, function: Callable[..., Any], *, otherwise: LearnerProgram | None = None, **options: Any
    ) -> None:
        self._function, self._otherwise, self._options = function, otherwise, options
        self._compiled: dict[int, Any] = {}
        self._lock = threading.Lock()

    def of(self, learner: Learner) -> Any:
        """The learner's own program, a jitted function of the other arguments."""
        number = id(learner)
        with self._lock:
            if number not in self._compiled:
                self._compiled[number] = jax.jit(partial(_call, self._function, weakref.ref(learner)), **self._options)
                weakref.finalize(learner, self._compiled.pop, number, None)
            return self._compiled[number]

    def __call__(self, learner: Learner, *arguments: Any) -> Any:
        """The function, compiled at its first call with arguments of such shapes."""
        try:
            return self.of(learner)(*arguments)
        except jax.errors.JaxRuntimeError as error:
            if self._otherwise is None or "UNIMPLEMENTED" not in str(error):
                raise
        other = self._otherwise.of(learner)
        with self._lock:
            first, self._compiled[id(learner)] = self._compiled[id(learner)] is not other, other
        if first and not is_ours(learner):
            warnings.warn(
                f"learner {learner.name!r}: XLA's CPU compiler cannot make one function of its loop, which is compiled "
                "in pieces instead and runs more slowly; the results are right.",
                stacklevel=2,
            )
        return self(learner, *arguments)

    def lower(self, learner: Learner, *arguments: Any) -> Any:
        """As `jax.jit`'s."""
        return self.of(learner).lower(*arguments)

    def __len__(self) -> int:
        """Of how many learners programs are kept."""
        return len(self._compiled)


def is_ours(learner: Learner) -> bool:
    """Whether the package brings it along: its author is told nothing that the tests must see."""
    update = getattr(learner.update, "func", learner.update)  # of a partial
    return str(getattr(update, "__module__", "")).startswith("cpdpo_jax.")


def _call(function: Callable[..., Any], learner: weakref.ref[Learner], *arguments: Any) -> Any:
    """While it is traced, the caller holds the learner."""
    return function(learner(), *arguments)
