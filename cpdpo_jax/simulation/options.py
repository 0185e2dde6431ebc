"""The options of a run, each defined once: name, default, meaning and allowed values.

The keyword arguments of `simulate`, the keys of a sweep's file and the flags of `cpdpo run` all derive from `Options`.
Nothing here imports jax, so the command line can check its arguments without waiting for it.
"""

from __future__ import annotations

import inspect
import itertools
import math
import numbers
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

import numpy as np

from cpdpo_jax.common.axes import AXES
from cpdpo_jax.common.text import did_you_mean, shown

if TYPE_CHECKING:
    import jax

LARGEST_KEY = 2**64 - 1
LEAST_DELTA = 1e-20  # T |X| |A| / delta is computed in float32
MOST_EPISODES = 2**31 - 1  # counts are int32

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _is_real(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def integer(name: str, value: Any, least: int = 1, most: int = MOST_EPISODES) -> int:
    """A whole number in a range; 1e5 is accepted, 1.7 and True are not."""
    number: Any = value if _is_real(value) else math.nan
    if not least <= number <= most or int(number) != number:
        raise ValueError(f"{name} = {shown(value)} is not a whole number; give an integer from {least} to {most}.")
    return int(number)


def _key(value: Any) -> int:
    if not isinstance(value, int | np.integer) and hasattr(value, "dtype") and hasattr(value, "shape"):
        return _key_of_words(value)
    return integer("key", value, least=0, most=LARGEST_KEY)


def _key_of_words(value: Any) -> int:
    """A jax key, typed or as its two words, is converted to the number from which `jax.random.key` would make it."""
    import jax

    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):  # pyright: ignore[reportPrivateImportUsage]
        value = jax.random.key_data(value)
    words = np.asarray(value)
    if words.shape == () and words.dtype.kind in "iu":
        return integer("key", words.item(), least=0, most=LARGEST_KEY)
    if words.shape != (2,) or words.dtype != np.uint32:
        raise ValueError(f"key has shape {words.shape}; give a whole number, or one jax key (two words of 32 bits).")
    return int(words[0]) << 32 | int(words[1])


def _checkpoints(value: Any) -> Any:
    if isinstance(value, str):
        if value != "log":
            raise ValueError(
                f"checkpoints = {shown(value)} is not valid; give 'log', a number of points, or the episodes."
            )
        return value
    if isinstance(value, Sequence | np.ndarray) and np.ndim(value) == 1 and len(value):
        return [integer("checkpoints", point) for point in value]
    if np.ndim(value) == 0:
        return integer("checkpoints", value)
    raise ValueError(f"checkpoints = {shown(value)} is not valid; give 'log', a number of points, or the episodes.")


def _is_single(value: Any) -> bool:
    """Neither a table, a list nor an array with axes."""
    return isinstance(value, str) or not (isinstance(value, Mapping | Sequence) or getattr(value, "ndim", 0))


def _axis(name: str, check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The check of an option that accepts a list as an axis; `check` checks a single value."""

    def checked(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return check(value)
        for entry in value:
            if not _is_single(entry):
                hint = ", or {'per_instance': [0.1, 0.2]} by itself for one value per instance" * (name == "rho")
                raise ValueError(f"{name} = {shown(value)} is ambiguous; give a list of values for an axis{hint}.")
            if isinstance(entry, str) and entry.startswith("estimate:"):
                raise ValueError(
                    f"{name} = {shown(value)} has {shown(entry)} in a list; run it alone and join with cp.concat."
                )
        values = [check(entry) for entry in value]
        if not values or len(set(values)) < len(values):
            raise ValueError(
                f"{name} = {shown(value)} {'has a value twice' if values else 'is empty'}; give each value once."
            )
        return values

    return checked


def _rho(value: Any) -> Any:
    if isinstance(value, str):
        episodes = value.removeprefix("estimate:")
        if value != "solve" and not (value != episodes and re.fullmatch("0*[1-9][0-9]{0,9}", episodes)):
            raise ValueError(f"rho = {shown(value)} is not valid; give 'solve', a positive number, or 'estimate:1000'.")
        return value
    if isinstance(value, Mapping):
        each: Any = value.get("per_instance")
        if len(value) > 1 or _is_single(each) or not all(map(_is_single, each)):
            raise ValueError(f"rho = {shown(value)} is not valid; give {{'per_instance': [0.1, 0.2]}}, or one number.")
        value = np.asarray(each)
    try:
        margins = np.asarray(value, float)
    except (TypeError, ValueError, OverflowError):
        margins = np.array(np.nan)
    if margins.ndim > 1:
        raise ValueError(
            f"rho has shape {margins.shape}, which is ambiguous; give a list for an axis, or an array [instances]."
        )
    if not (np.isfinite(margins) & (margins > 0)).all():
        raise ValueError(f"rho = {shown(value)} is not positive; give a Slater margin above 0.")
    return {"per_instance": margins.tolist()} if margins.ndim else margins.item()


def _delta(value: Any) -> float:
    if not (_is_real(value) and LEAST_DELTA <= value < 1):
        raise ValueError(
            f"delta = {shown(value)} is not a confidence parameter; give a number of at least {LEAST_DELTA:g} and "
            "below 1."
        )
    return float(value)


def _horizon(value: Any) -> str:
    if value not in ("known", "doubling"):
        raise ValueError(f"horizon = {shown(value)} is not valid; give 'known' or 'doubling'.")
    return value


def _safety(value: Any) -> float:
    if not (_is_real(value) and 0 < value <= 1):
        raise ValueError(
            f"safety = {shown(value)} is not a share of the Slater margin; give a number above 0, at most 1."
        )
    return float(value)


def _monitor(value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"monitor = {shown(value)} is not valid; give True or False.")
    return bool(value)


def _dtype(value: Any) -> str:
    try:
        name = "" if value is None else np.dtype(value).name  # NumPy takes None for float64
    except (TypeError, ValueError, SyntaxError):
        name = ""
    if name not in ("float32", "float64"):
        raise ValueError(f"dtype = {shown(value)} is not valid; give 'float32' or 'float64'.")
    return name


def _option(default: Any, check: Callable[[Any], Any], shown: str, means: str) -> Any:
    return field(default=default, metadata={"check": check, "shown": shown, "means": means})


@dataclass(frozen=True)
class Options:
    """The options of a run besides learners, instances, hparams, seeds and T; the constructor checks them."""

    key: int = _option(0, _key, "N", "random seed, a whole number; from Python also a JAX key")
    checkpoints: Any = _option(
        "log", _checkpoints, "WHICH", '"log" (20 per decade), a number of evenly spaced episodes, or a list of episodes'
    )
    rho: Any = _option(
        "solve",
        _axis("rho", _rho),
        "RHO",
        'Slater margin given to the learner: "solve" (the true margin), a number (misspecified on purpose), '
        '{"per_instance": [...]} or an array [instances], or "estimate:N" (estimated from the first N episodes, which '
        "are played uniformly and count); a list is an axis: an entry of hparams per value, with common random numbers",
    )
    delta: Any = _option(
        0.05, _axis("delta", _delta), "P", "confidence parameter given to the learner; a list is an axis"
    )
    horizon: str = _option(
        "known",
        _horizon,
        "WHICH",
        '"known": the learner\'s constants use T; "doubling": T is unknown, and the learner restarts at 2^k * 1024',
    )
    monitor: bool = _option(
        False,
        _monitor,
        "true|false",
        "check the learner's analysis in every episode (`result.monitor_table()`)",
    )
    safety: Any = _option(
        0.5,
        _axis("safety", _safety),
        "SHARE",
        "share of the Slater margin that the safe policy keeps, for learners that require such a policy: 1 gives the "
        "safest policy, values near 0 an almost optimal one; a list is an axis",
    )
    dtype: str = _option("float32", _dtype, "NAME", '"float32" or "float64", independent of jax_enable_x64')

    def __post_init__(self) -> None:
        for entry in fields(self):
            object.__setattr__(self, entry.name, entry.metadata["check"](getattr(self, entry.name)))

    @property
    def axes(self) -> dict[str, list[Any]]:
        """The options that are axes, with their values."""
        return {name: values for name in AXES if isinstance(values := getattr(self, name), list)}

    def combinations(self) -> list[tuple[dict[str, Any], Options]]:
        """For each combination of the axes' values, these values by name and the options with them."""
        chosen = [dict(zip(self.axes, values, strict=True)) for values in itertools.product(*self.axes.values())]
        return [(values, replace(self, **values)) for values in chosen]

    @staticmethod
    def from_values(values: Mapping[str, Any]) -> Options:
        """Options by name; raises ValueError for an unknown name, with the nearest known name."""
        for name in values:
            if name not in OPTION_NAMES:
                hint = did_you_mean(name, OPTION_NAMES) or f"the options are {', '.join(OPTION_NAMES)}."
                hint = "hyperparameters and presets are given as hparams." if name == "settings" else hint
                raise ValueError(f"there is no option {shown(name)}; {hint}")
        return Options(**values)


OPTION_NAMES = tuple(entry.name for entry in fields(Options))


class OptionValues(TypedDict, total=False):
    """The options as keyword arguments, for type checkers: `**options: Unpack[OptionValues]`. See `Options`."""

    key: int | np.integer[Any] | jax.Array
    checkpoints: Literal["log"] | int | Sequence[int] | np.ndarray
    rho: float | str | Sequence[float | str] | Mapping[str, Sequence[float]] | np.ndarray
    delta: float | Sequence[float] | np.ndarray
    horizon: Literal["known", "doubling"]
    monitor: bool
    safety: float | Sequence[float] | np.ndarray
    dtype: Literal["float32", "float64"] | np.dtype[Any] | type[np.floating[Any]]


def takes_options(function: _Function) -> _Function:
    """Show the options in a function's signature and docstring (at the line `@OPTIONS`) in place of **options."""
    signature = inspect.signature(function)
    explicit = [
        parameter for parameter in signature.parameters.values() if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    keyword = inspect.Parameter.KEYWORD_ONLY
    kinds = OptionValues.__annotations__
    added = [
        inspect.Parameter(entry.name, keyword, default=entry.default, annotation=kinds[entry.name].__forward_arg__)
        for entry in fields(Options)
    ]
    function.__signature__ = signature.replace(parameters=[*explicit, *added])  # pyright: ignore[reportFunctionMemberAccess]
    lines = "\n    ".join(f"{option.name:12} {option.metadata['means']}" for option in fields(Options))
    function.__doc__ = (function.__doc__ or "").replace("@OPTIONS", lines)
    return function
