"""Errors raised in user code: the learner or environment, the file and the line."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

from cpdpo_jax.sweeps import hashing

FUNCTIONS = ("hyperparameters", "init", "policy", "update", "mixture")


def describe(error: BaseException) -> str | None:
    """The place and message of an error in user code that this package called, in a line; None for other errors."""
    frames = list(traceback.walk_tb(error.__traceback__))
    inside = next((i for i, (frame, _) in enumerate(frames) if _is_package(frame)), len(frames))
    user_frames = [(frame, line) for frame, line in frames[inside:] if _is_user_code(frame)]
    if not user_frames:
        return None
    frame, line = user_frames[-1]
    names = _names({frame.f_code for frame, _ in user_frames})
    place = f"{names}{frame.f_code.co_filename}, line {line}, in {frame.f_code.co_name}"
    message = next(iter(str(error).strip().splitlines()), "").rstrip(".")
    return f"{place}: {type(error).__name__}{': ' * bool(message)}{message}"


def _is_package(frame: FrameType) -> bool:
    return Path(frame.f_code.co_filename).is_relative_to(Path(__file__).parents[1])


def _is_user_code(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return not name.startswith("<") and not hashing.is_installed(Path(name).absolute())


def _names(codes: set[CodeType]) -> str:
    """The registered learner or environment whose function is among the code objects, followed by a comma."""
    from cpdpo_jax.envs import registry
    from cpdpo_jax.learners import base

    for name in base.registered():
        learner = base.get(name)
        for function in FUNCTIONS:
            if codes & set(_codes(getattr(learner, function))):
                return f"learner {name!r} ({function}), "
    for name in registry.names():
        if codes & set(_codes(registry.registered(name))):
            return f"environment {name!r}, "
    return ""


def _codes(function: object) -> Iterator[CodeType]:
    """The code of a function, without wrappers such as those of `functools.partial` and `jax.jit`."""
    while isinstance(function, functools.partial):
        function = function.func
    if callable(function):
        code = getattr(inspect.unwrap(function), "__code__", None)
        if code is not None:
            yield code
