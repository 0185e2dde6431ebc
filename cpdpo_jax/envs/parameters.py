"""Checks of the families' parameters: the error names the parameter, its value and the allowed range."""

from __future__ import annotations

from typing import Any

import numpy as np


def whole(name: str, value: Any, low: int, high: int | None = None) -> int:
    """A whole number in [low, high]."""
    real = isinstance(value, int | np.integer) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not real or value < low or (high is not None and value > high):
        end = f"from {low} to {high}" if high is not None else f"of at least {low}"
        raise ValueError(f"{name} = {value!r}; give a whole number {end}.")
    return int(value)


def number(name: str, value: Any, low: float, high: float, *, open_low: bool = False, open_high: bool = False) -> float:
    """A number in [low, high], or without the ends that are open."""
    try:
        x = float(value)
    except (TypeError, ValueError):
        x = np.nan
    inside = (x > low if open_low else x >= low) and (x < high if open_high or high == np.inf else x <= high)
    if isinstance(value, bool) or not inside:
        left = "(" if open_low or low == -np.inf else "["
        right = ")" if open_high or high == np.inf else "]"
        raise ValueError(f"{name} = {value!r}; give a number in {left}{low:g}, {high:g}{right}.")
    return x


def interval(name: str, value: Any, low: float, high: float) -> tuple[float, float]:
    """Two numbers in [low, high], the second not below the first."""
    if np.shape(value) != (2,) or not low <= float(value[0]) <= float(value[1]) <= high:
        raise ValueError(f"{name} = {value!r}; give two numbers a <= b in [{low:g}, {high:g}].")
    return float(value[0]), float(value[1])


def thresholds(name: str, value: Any, m: int) -> list[float]:
    """One finite number for each of m constraints."""
    try:
        found = np.array(value, float).reshape(-1)
    except (TypeError, ValueError):
        found = np.array([np.nan])
    if len(found) != m or not np.isfinite(found).all():
        raise ValueError(f"{name} = {value!r}; give {m} finite number{'s' if m > 1 else ''}.")
    return found.tolist()
