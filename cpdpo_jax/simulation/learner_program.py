"""Compiled programs of learners, kept as long as the learner exists.

`jax.jit` would keep a learner given as a static argument for ever, together with its programs (5 to 8 MB).
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import jax

from cpdpo_jax.kernels.machines import programs, target
from cpdpo_jax.learners.base import Learner


class LearnerProgram:
    """function(learner, ...), compiled separately for each learner; `options` are passed to `jax.jit`.

    Argument numbers in `options` do not count the learner.
    """

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        self._function, self._options = function, options
        self._compiled: dict[int, dict[Any, Any]] = {}  # by the learner's id, then by contexts and compiler options
        self._lock = threading.Lock()

    def __call__(self, learner: Learner, *arguments: Any) -> Any:
        """Call the function; it is compiled at the first call with arguments of these shapes."""
        return self.program(learner)(*arguments)

    def lower(self, learner: Learner, *arguments: Any) -> Any:
        """The counterpart of `jax.jit(...).lower`."""
        return self.program(learner).lower(*arguments)

    def program(self, learner: Learner) -> Any:
        """The learner's program, a jitted function of the other arguments."""
        number, options = id(learner), programs.compiler_options()
        key = target.program_key(), tuple(options.items())
        with self._lock:
            if number not in self._compiled:
                self._compiled[number] = {}
                weakref.finalize(learner, self._compiled.pop, number, None)
            if key not in self._compiled[number]:
                function = _without_learner(self._function, weakref.ref(learner))
                self._compiled[number][key] = jax.jit(function, compiler_options=options or None, **self._options)
            return self._compiled[number][key]

    def __len__(self) -> int:
        """The number of learners that have programs."""
        return len(self._compiled)


def _without_learner(function: Callable[..., Any], learner: weakref.ref[Learner]) -> Callable[..., Any]:
    """The function of the other arguments; the caller keeps the learner alive during tracing."""

    def call(*arguments: Any) -> Any:
        return function(learner(), *arguments)

    call.__name__ = call.__qualname__ = f"cpdpo_{function.__name__}"
    return call
