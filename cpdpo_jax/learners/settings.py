"""Hyperparameter settings: a preset, values over a preset, or a grid of them.

"tuned"                                                  the preset
{"learning_rate": 0.01}                                  over the "tuned" preset
{"preset": "theory", "bonus_scale": [0.1, 1.0]}          a grid: one setting per combination
{"learning_rate": ["x0.5", "x1", "x2"]}                  "x2": twice the preset's value
[{...}, {...}]                                           settings one by one
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from cpdpo_jax.common.words import did_you_mean
from cpdpo_jax.learners.base import PRESETS, Learner, Problem

Hparams = str | dict[str, Any] | list[dict[str, Any] | str]


class Setting(NamedTuple):
    """One choice of hyperparameters: a preset and what is put in place of its values."""

    label: str
    preset: str
    values: dict[str, Any]  # numbers, or "x2" for twice the preset's value


PLAIN = Setting("tuned", "tuned", {})


def parse(hparams: Hparams) -> list[Setting]:
    """All settings that `hparams` describes, in order."""
    if isinstance(hparams, (str, dict)):
        hparams = [hparams]
    if not isinstance(hparams, (list, tuple)) or not all(isinstance(spec, (str, dict)) for spec in hparams):
        raise ValueError(
            f"hparams = {hparams!r} is not a setting; give 'tuned', 'theory', values such as "
            "{'learning_rate': 0.01}, or a list of those."
        )
    settings = [setting for spec in hparams for setting in _expand(spec)]
    if not settings:
        raise ValueError(f"hparams = {hparams!r} names no setting; give at least one, such as 'tuned'.")
    labels = [setting.label for setting in settings]
    for label in labels:
        if labels.count(label) > 1:
            raise ValueError(f"hparams names the setting {label!r} twice; give each setting once.")
    return settings


def _expand(spec: str | dict[str, Any]) -> list[Setting]:
    spec = {"preset": spec} if isinstance(spec, str) else dict(spec)
    preset = spec.pop("preset", "tuned")
    if preset not in PRESETS:
        raise ValueError(f"hparams: there is no preset {preset!r}; choose one of {', '.join(PRESETS)}.")
    choices = [_choices(name, value) for name, value in spec.items()]
    settings = []
    for values in itertools.product(*choices):
        chosen = dict(zip(spec, values, strict=True))
        label = ", ".join([preset, *(f"{name}={_show(value)}" for name, value in chosen.items())])
        settings.append(Setting(label, preset, chosen))
    return settings


def _choices(name: str, value: Any) -> list[Any]:
    """The values of a hyperparameter in a grid: one, a list, or an array with one axis."""
    if isinstance(value, (list, tuple)):
        return [one for item in value for one in _choices(name, item)]
    if hasattr(value, "ndim") and hasattr(value, "tolist"):  # NumPy's and jax's arrays and numbers
        if value.ndim > 1:
            raise ValueError(
                f"hparams: {name} is an array of shape {tuple(value.shape)}; give a number, or a list of numbers for a "
                "grid: settings are the same for all instances and seeds."
            )
        return value.tolist() if value.ndim else [value.tolist()]
    if not (isinstance(value, str) and value.startswith("x")):
        _number(name, value)
    return [value]


def _show(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def resolve(setting: Setting, learner: Learner, problem: Problem) -> Any:
    """The learner's hyperparameters under a setting, [instances] float64 on the host."""
    hyper = learner.hyperparameters(problem, setting.preset)
    changed = {}
    for name, value in setting.values.items():
        if name not in hyper._fields:
            near = did_you_mean(name, hyper._fields, most=1)
            known = ", ".join(hyper._fields) or "none at all"
            hint = f" ({near})" if near else ""
            raise ValueError(f"hparams: learner {learner.name!r} has no hyperparameter {name!r}{hint}; it has {known}.")
        before = np.asarray(getattr(hyper, name), float)
        factor = isinstance(value, str) and value.startswith("x")
        changed[name] = before * _number(name, value[1:]) if factor else 0 * before + _number(name, value)
    return hyper._replace(**changed)


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise ValueError(
            f"hparams: {name} = {value!r} is not a finite number of at least 0; give a number, or 'x2' for twice the "
            "preset's value."
        )
    return number
