"""The options of a run, each written once: its name, default, what it means, and what it may be.

`simulate` takes them as keyword arguments, a sweep's file as keys, `cpdpo run` as flags: all are made of `Options`.
Nothing here imports jax, so that the command line can check what it is asked without waiting for it.
"""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import numpy as np

from cpdpo_jax.common.words import did_you_mean

LARGEST_KEY = 2**64 - 1
MOST_EPISODES = 2**31 - 1  # counts are int32

_Function = TypeVar("_Function", bound=Callable[..., Any])


def whole(name: str, value: Any, least: int = 1, most: int = MOST_EPISODES) -> int:
    """A whole number in a range; 1e5 is one, 1.7 and True are not."""
    number: Any = math.nan if isinstance(value, bool) or not isinstance(value, numbers.Real) else value
    if not math.isfinite(number) or int(number) != number or not least <= number <= most:
        raise ValueError(f"{name} = {value!r} is not a whole number from {least} to {most}.")
    return int(number)


def _key(value: Any) -> int:
    if not isinstance(value, int | np.integer) and hasattr(value, "dtype") and hasattr(value, "shape"):
        return _key_of_words(value)
    return whole("key", value, least=0, most=LARGEST_KEY)


def _key_of_words(value: Any) -> int:
    """A jax key, typed or as its two words, is taken as the number that `jax.random.key` would make it of."""
    import jax

    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):  # pyright: ignore[reportPrivateImportUsage]
        value = jax.random.key_data(value)
    words = np.asarray(value)
    if words.shape == () and words.dtype.kind in "iu":
        return whole("key", words.item(), least=0, most=LARGEST_KEY)
    if words.shape != (2,) or words.dtype != np.uint32:
        raise ValueError(f"key has shape {words.shape}; give a whole number, or one jax key (two words of 32 bits).")
    return int(words[0]) << 32 | int(words[1])


def _checkpoints(value: Any) -> Any:
    if isinstance(value, str):
        if value != "log":
            raise ValueError(f"checkpoints = {value!r} is not known; give 'log', a number of points, or the episodes.")
        return value
    if isinstance(value, Sequence | np.ndarray) and np.ndim(value) == 1 and len(value):
        return [whole("checkpoints", point) for point in value]
    if np.ndim(value) == 0:
        return whole("checkpoints", value)
    raise ValueError(f"checkpoints = {value!r} is not known; give 'log', a number of points, or the episodes.")


def _rho(value: Any) -> Any:
    if isinstance(value, str):
        episodes = value.removeprefix("estimate:")
        if value != "solve" and not (value != episodes and episodes.isdigit() and int(episodes) > 0):
            raise ValueError(f"rho = {value!r} is not known; give 'solve', a positive number, or 'estimate:1000'.")
        return value
    try:
        margins = np.asarray(value, float)
    except (TypeError, ValueError):
        margins = np.array(np.nan)
    if margins.ndim > 1 or not (np.isfinite(margins) & (margins > 0)).all():
        raise ValueError(f"rho = {value!r} is not positive; CPD-PO needs the Slater margin to be above 0.")
    return margins.tolist()


def _delta(value: Any) -> float:
    if not isinstance(value, numbers.Real) or isinstance(value, bool) or not 0 < float(value) < 1:
        raise ValueError(f"delta = {value!r} is not a probability; give a number between 0 and 1, such as 0.05.")
    return float(value)


def _horizon(value: Any) -> str:
    if value not in ("known", "doubling"):
        raise ValueError(f"horizon = {value!r} is not known; give 'known' or 'doubling'.")
    return value


def _safety(value: Any) -> float:
    if not isinstance(value, numbers.Real) or isinstance(value, bool) or not 0 < float(value) <= 1:
        raise ValueError(f"safety = {value!r} is not a share of the Slater margin; give a number above 0, at most 1.")
    return float(value)


def _monitor(value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"monitor = {value!r} is not true or false.")
    return bool(value)


def _dtype(value: Any) -> str:
    try:
        name = "" if value is None else np.dtype(value).name  # NumPy takes None for float64
    except TypeError:
        name = ""
    if name not in ("float32", "float64"):
        raise ValueError(f"dtype = {value!r} is not known; give 'float32' or 'float64'.")
    return name


def _option(default: Any, check: Callable[[Any], Any], shown: str, means: str) -> Any:
    return field(default=default, metadata={"check": check, "shown": shown, "means": means})


@dataclass(frozen=True)
class Options:
    """How a run is done; what is run (learners, instances, settings, seeds, T) is said beside it. Checked when made."""

    key: int = _option(0, _key, "N", "of the random draws: a whole number, or a jax key")
    checkpoints: Any = _option(
        "log", _checkpoints, "WHICH", '"log" (20 per decade), how many evenly spaced ones, or the episodes themselves'
    )
    rho: Any = _option(
        "solve",
        _rho,
        "RHO",
        'the Slater margin handed to the learner: "solve" (the true one), a number or one per instance (misspecified '
        'on purpose), or "estimate:N" (from N first episodes of uniform play, which count)',
    )
    delta: float = _option(0.05, _delta, "P", "the confidence handed to the learner")
    horizon: str = _option(
        "known",
        _horizon,
        "WHICH",
        '"known": the learner\'s constants use T; "doubling": T is unknown, the learner restarts at 2^k * 1024',
    )
    monitor: bool = _option(
        False,
        _monitor,
        "true|false",
        "watch the learner's analysis in every episode (`result.monitor_table()`)",
    )
    safety: float = _option(
        0.5,
        _safety,
        "SHARE",
        "of the Slater margin that is kept by the safe policy handed to learners that declare to need one: from 1, the "
        "safest policy of all, towards 0, the optimum",
    )
    dtype: str = _option("float32", _dtype, "NAME", '"float32", or "float64", whatever jax_enable_x64 is')

    def __post_init__(self) -> None:
        for entry in fields(self):
            object.__setattr__(self, entry.name, entry.metadata["check"](getattr(self, entry.name)))

    @staticmethod
    def made_of(values: Mapping[str, Any]) -> Options:
        """Options by name; a name that is not one is refused, with the nearest that is."""
        for name in values:
            if name not in OPTION_NAMES:
                hint = did_you_mean(name, OPTION_NAMES) or f"the options are {', '.join(OPTION_NAMES)}."
                hint = "hyperparameters and presets are given as hparams." if name == "settings" else hint
                raise ValueError(f"there is no option {name!r}; {hint}")
        return Options(**values)


OPTION_NAMES = tuple(entry.name for entry in fields(Options))


def takes_options(function: _Function) -> _Function:
    """Show the options in a function's signature and docstring (at the line `@OPTIONS`), where it says **options."""
    signature = inspect.signature(function)
    explicit = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [inspect.Parameter(one.name, keyword, default=one.default, annotation=one.type) for one in fields(Options)]
    function.__signature__ = signature.replace(parameters=[*explicit, *added])  # pyright: ignore[reportFunctionMemberAccess]
    lines = "\n    ".join(f"{one.name:12} {one.metadata['means']}" for one in fields(Options))
    function.__doc__ = (function.__doc__ or "").replace("@OPTIONS", lines)
    return function
