"""Compiled programs of learners, kept as long as their learner is; the package's own also in files.

A learner given to `jax.jit` as a static argument would be kept for ever, and its programs (5 to 8 MB) with it.
"""

from __future__ import annotations

import re
import threading
import warnings
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax

from cpdpo_jax.kernels.cpu import program_files
from cpdpo_jax.learners.base import Learner


class _Programs(NamedTuple):
    """Of one learner, for which threads wait for each other: the second finds what the first has compiled."""

    found: dict[Any, Any]  # by the signature of the arguments
    lock: threading.Lock


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
        self._from_files: dict[int, _Programs] = {}
        self._refused: set[int] = set()  # learners that `otherwise` is for
        self._lock = threading.Lock()

    def of(self, learner: Learner) -> Any:
        """The learner's own program, a jitted function of the other arguments."""
        number = id(learner)
        with self._lock:
            if number not in self._compiled:
                self._compiled[number] = self._jitted(learner, "")
                self._from_files[number] = _Programs({}, threading.Lock())
                weakref.finalize(learner, self._forget, number)
            return self._compiled[number]

    def _jitted(self, learner: Learner, text: str) -> Any:
        return jax.jit(_named(self._function, weakref.ref(learner), text), **self._options)

    def _forget(self, number: int) -> None:
        self._compiled.pop(number, None)
        self._from_files.pop(number, None)
        self._refused.discard(number)

    def __call__(self, learner: Learner, *arguments: Any) -> Any:
        """The function, compiled at its first call with arguments of such shapes."""
        number = id(learner)
        refused = number in self._refused
        try:
            return self.ready(learner, *arguments)(*arguments)
        except jax.errors.JaxRuntimeError as error:
            if self._otherwise is None or refused or "UNIMPLEMENTED" not in str(error):
                raise
        with self._lock:  # of several threads one tells of it
            first = number not in self._refused
            self._refused.add(number)
        if first and not is_ours(learner):
            warnings.warn(
                f"learner {learner.name!r}: XLA's CPU compiler cannot make one function of its loop, which is compiled "
                "in pieces instead and runs more slowly; the results are right.",
                stacklevel=2,
            )
        return self(learner, *arguments)

    def ready(self, learner: Learner, *arguments: Any) -> Callable[..., Any]:
        """The program for arguments like these, a function of them; from its file, if it has one.

        Who calls it in every episode finds it once: the signature of the arguments takes longer than a short episode.
        """
        jitted = self.of(learner)
        if self._otherwise is not None and id(learner) in self._refused:
            return self._otherwise.ready(learner, *arguments)
        static = self._options.get("static_argnums", ())
        positions = [i for i in range(len(arguments)) if i not in static]
        fixed = [argument for i, argument in enumerate(arguments) if i in static]
        known = program_files.signature(fixed, [arguments[i] for i in positions])
        if known is None:
            return jitted
        programs, key = self._from_files[id(learner)], (_cleared(), known)
        with programs.lock:
            if key not in programs.found:
                name = learner.name, self._function.__qualname__, repr(self._options)
                made_of = self._function, self._options, learner
                make = partial(self._jitted, learner)
                programs.found[key] = program_files.program(make, name, made_of, known, arguments)
        program = programs.found[key]
        return jitted if program is None else lambda *arguments: program(*(arguments[i] for i in positions))

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


def _named(function: Callable[..., Any], learner: weakref.ref[Learner], text: str) -> Callable[..., Any]:
    """The function of the other arguments; while it is traced, the caller holds the learner.

    jax's cache tells programs apart by their names, too: with a `text` of their own those that are to be written to a
    file are compiled, where one that jax has read can be run, but not written (`program_files`).
    """

    def call(*arguments: Any) -> Any:
        return function(learner(), *arguments)

    call.__name__ = call.__qualname__ = "_".join(re.findall(r"\w+", f"cpdpo {function.__name__} {text}"))
    return call


def _cleared() -> int:
    """How often `jax.clear_caches` was called, as far as it is known: then everything is to be traced anew."""
    global _CLEARED
    if not _MARK._cache_size():
        _MARK()
        _CLEARED += 1
    return _CLEARED


_MARK: Any = jax.jit(lambda: 0)
_CLEARED = 0
