"""Checks of the families' parameters: the error names the parameter, its value and the allowed range."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from cpdpo_jax.common.text import shown

LARGEST = 2**64 - 1
COPIES = 2  # of the transitions of every instance, see `check_memory`
SOLVING_DENSE, SOLVING_SPARSE = 14, 2  # copies of one instance's dense transitions that its linear program needs


def integer(name: str, value: Any, low: int, high: int = LARGEST) -> int:
    """A whole number in [low, high]."""
    real = isinstance(value, int | np.integer) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not real or not low <= value <= high:
        end = f"from {low} to {high}" if high < LARGEST or (real and value > high) else f"of at least {low}"
        raise ValueError(f"{name} = {shown(value)}; give a whole number {end}.")
    return int(value)


def number(name: str, value: Any, low: float, high: float, *, open_low: bool = False, open_high: bool = False) -> float:
    """A number in [low, high], excluding open ends."""
    try:
        x = float(value)
    except (TypeError, ValueError, OverflowError):
        x = np.nan
    inside = (x > low if open_low else x >= low) and (x < high if open_high or high == np.inf else x <= high)
    if isinstance(value, bool) or not inside:
        left = "(" if open_low or low == -np.inf else "["
        right = ")" if open_high or high == np.inf else "]"
        raise ValueError(f"{name} = {shown(value)}; give a number in {left}{low:g}, {high:g}{right}.")
    return x


def check_memory(
    family: str, n_layers: int, n_states: int, n_actions: int, instances: Any = None, solving: int = SOLVING_DENSE
) -> None:
    """Raise if the machine lacks the memory to build and solve instances of these sizes.

    The measured need is `COPIES` times the transitions [L-1,S,A,S] of all instances, and `solving` times those of one
    instance, because one linear program is solved at a time.
    """
    instances = 1 if instances is None else integer("instances", instances, 1)
    needed = 8 * max(n_layers - 1, 1) * n_states**2 * n_actions * (COPIES * instances + solving)
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**40
    if needed > there:
        raise ValueError(
            f"{family}: {n_layers} layers of {n_states} states and {n_actions} actions need {needed / 1e9:,.0f} GB of "
            f"memory to build and solve, and this machine has {there / 1e9:,.0f} GB; give smaller sizes."
        )


def interval(name: str, value: Any, low: float, high: float) -> tuple[float, float]:
    """Two numbers in [low, high], the second not below the first."""
    if np.shape(value) != (2,) or not low <= float(value[0]) <= float(value[1]) <= high:
        raise ValueError(f"{name} = {shown(value)}; give two numbers a <= b in [{low:g}, {high:g}].")
    return float(value[0]), float(value[1])


def thresholds(name: str, value: Any, m: int) -> list[float]:
    """One finite number for each of m constraints."""
    try:
        values = np.array(value, float).reshape(-1)
    except (TypeError, ValueError):
        values = np.array([np.nan])
    if len(values) != m or not np.isfinite(values).all():
        raise ValueError(f"{name} = {shown(value)}; give {m} finite number{'s' if m > 1 else ''}.")
    return values.tolist()
