"""Options of a run that may be lists: each value has its own entry along `hparams`, like a hyperparameter value."""

from __future__ import annotations

AXES = ("rho", "delta", "safety")


def label(name: str, value: float | str) -> str:
    """A value in the label of hparams, such as "rho=0.1": in six digits, or in all if six are not enough."""
    if isinstance(value, str):
        return f"{name}={value}"
    short = f"{value:g}"
    return f"{name}={short if float(short) == value else repr(float(value))}"
