"""`hparams`: a preset of hyperparameters, values that override it, or a grid of them.

"tuned"                                                  the preset
{"learning_rate": 0.01}                                  over the "tuned" preset
{"preset": "theory", "bonus_scale": [0.1, 1.0]}          a grid: one choice per combination
{"learning_rate": ["x0.5", "x1", "x2"]}                  "x2": twice the preset's value
[{...}, {...}]                                           several choices
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cpdpo_jax.common import axes
from cpdpo_jax.common.text import did_you_mean, shown
from cpdpo_jax.learners.base import PRESETS, Learner, Problem

HparamsLike = str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]]


class Hparams(NamedTuple):
    """One choice of hyperparameters: a preset and the values that override it."""

    label: str
    preset: str
    values: dict[str, Any]  # numbers, or "x2" for twice the preset's value
    options: dict[str, Any]  # rho, delta and safety where they are axes


PLAIN = Hparams("tuned", "tuned", {}, {})


def parse(hparams: HparamsLike) -> list[Hparams]:
    """All choices that `hparams` describes, in order."""
    if isinstance(hparams, str | Mapping):
        hparams = [hparams]
    if not isinstance(hparams, list | tuple) or not all(isinstance(spec, str | Mapping) for spec in hparams):
        raise ValueError(
            f"hparams = {shown(hparams)} is not valid; give 'tuned', 'theory', values such as "
            "{'learning_rate': 0.01}, or a list of those."
        )
    choices = [choice for spec in hparams for choice in _expand(spec)]
    if not choices:
        raise ValueError(f"hparams = {shown(hparams)} is empty; give at least one choice, such as 'tuned'.")
    labels = [choice.label for choice in choices]
    for label in labels:
        if labels.count(label) > 1:
            raise ValueError(f"hparams contains {shown(label)} twice; give each choice once.")
    return choices


def _expand(given: str | Mapping[str, Any]) -> list[Hparams]:
    spec = {"preset": given} if isinstance(given, str) else dict(given)
    preset = spec.pop("preset", "tuned")
    if preset not in PRESETS:
        raise ValueError(f"hparams: there is no preset {shown(preset)}; choose one of {', '.join(PRESETS)}.")
    values_of = [_choices(name, value) for name, value in spec.items()]
    choices = []
    for values in itertools.product(*values_of):
        chosen = dict(zip(spec, values, strict=True))
        label = ", ".join([preset, *(f"{name}={_show(value)}" for name, value in chosen.items())])
        choices.append(Hparams(label, preset, chosen, {}))
    return choices


def with_options(hparams: Hparams, options: dict[str, Any]) -> Hparams:
    """The choice with the values of options that are axes: {"rho": 0.1} -> "tuned, rho=0.1"."""
    label = ", ".join([hparams.label, *(axes.label(name, value) for name, value in options.items())])
    return hparams._replace(label=label, options=options)


def _choices(name: str, value: Any) -> list[Any]:
    """The values of a hyperparameter in a grid: a number, a list, or an array with one axis."""
    if isinstance(value, list | tuple):
        return [number for item in value for number in _choices(name, item)]
    if hasattr(value, "ndim") and hasattr(value, "tolist"):  # NumPy's and jax's arrays and numbers
        if value.ndim > 1:
            raise ValueError(
                f"hparams: {name} is an array of shape {tuple(value.shape)}; give a number, or a list of numbers for a "
                "grid; all instances and seeds share the hyperparameters."
            )
        return value.tolist() if value.ndim else [value.tolist()]
    if not (isinstance(value, str) and value.startswith("x")):
        _number(name, value)
    return [value]


def _show(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def resolve(hparams: Hparams, learner: Learner, problem: Problem) -> Any:
    """The learner's hyperparameters for one choice, [instances] float64 on the host."""
    hyper = learner.hyperparameters(problem, hparams.preset)
    changed = {}
    for name, value in hparams.values.items():
        if name not in hyper._fields:
            near = did_you_mean(name, hyper._fields, most=1)
            known = ", ".join(hyper._fields) or "none at all"
            hint = f" ({near})" if near else ""
            raise ValueError(
                f"hparams: learner {shown(learner.name)} has no hyperparameter {shown(name)}{hint}; it has {known}."
            )
        before = np.asarray(getattr(hyper, name), float)
        factor = isinstance(value, str) and value.startswith("x")
        changed[name] = before * _number(name, value[1:]) if factor else 0 * before + _number(name, value)
    return hyper._replace(**changed)


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise ValueError(
            f"hparams: {name} = {shown(value)} is not a finite number >= 0; give one, or 'x2' for twice the "
            "preset's value."
        )
    return number
