"""Compiled programs of learners, kept as long as their learner is; the package's own also in files.

A learner given to `jax.jit` as a static argument would be kept for ever, and its programs (5 to 8 MB) with it.
"""

from __future__ import annotations

import re
import threading
import warnings
import weakref
from collections.abc import Callable
from functools import cache
from importlib import metadata
from typing import Any

import jax

from cpdpo_jax.kernels.cpu import program_files
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
        self._from_files: dict[int, dict[Any, Any]] = {}  # of a learner, by the signature of the arguments
        self._lock = threading.Lock()

    def of(self, learner: Learner) -> Any:
        """The learner's own program, a jitted function of the other arguments."""
        number = id(learner)
        with self._lock:
            if number not in self._compiled:
                self._compiled[number] = jax.jit(_named(self._function, weakref.ref(learner)), **self._options)
                weakref.finalize(learner, self._compiled.pop, number, None)
                weakref.finalize(learner, self._from_files.pop, number, None)
            return self._compiled[number]

    def __call__(self, learner: Learner, *arguments: Any) -> Any:
        """The function, compiled at its first call with arguments of such shapes."""
        try:
            return self.ready(learner, *arguments)(*arguments)
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

    def ready(self, learner: Learner, *arguments: Any) -> Callable[..., Any]:
        """The program for arguments like these, a function of them; from its file, if it has one.

        Who calls it in every episode finds it once: the signature of the arguments takes longer than a short episode.
        """
        jitted, static = self.of(learner), self._options.get("static_argnums", ())
        positions = [i for i in range(len(arguments)) if i not in static]
        fixed = [argument for i, argument in enumerate(arguments) if i in static]
        kind = program_files.signature(fixed, [arguments[i] for i in positions])
        if kind is None:
            return jitted
        known = self._from_files.setdefault(id(learner), {})
        if kind not in known:
            name = learner.name, self._function.__qualname__, repr(self._options)
            made_from = self._function, self._options, learner
            known[kind] = program_files.program(jitted, name, made_from, kind, arguments)
        program = known[kind]
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


def _named(function: Callable[..., Any], learner: weakref.ref[Learner]) -> Callable[..., Any]:
    """The function of the other arguments; while it is traced, the caller holds the learner.

    Its name has the package's version in it, because jax's cache tells programs apart by their names, too: what it has
    of an older version can be run, but not written to a file (`program_files`).
    """

    def call(*arguments: Any) -> Any:
        return function(learner(), *arguments)

    call.__name__ = call.__qualname__ = "_".join(["cpdpo", *re.findall(r"\w+", f"{function.__name__} {_version()}")])
    return call


@cache
def _version() -> str:
    return metadata.version("cpdpo_jax")
