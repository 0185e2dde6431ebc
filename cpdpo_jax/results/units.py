"""Units of results: those of the CMDP's source, or the learner's, in which rewards and costs lie in [0, 1].

A data set is computed and stored in the learner's units. It contains `reward_scale`, `cost_scale` and their offsets,
with original value = scale * value + offset. Differences of two values (regret, violation, gaps) are multiplied by
|scale| without an offset, multipliers (reward per cost) by |reward_scale| / |cost_scale|, and values (OPT, thresholds)
use scale and offset. rho is not converted, because it is a margin over all constraints, whose units may differ.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    import xarray as xr

UnitsName = Literal["source", "learner"]
UNITS: tuple[UnitsName, ...] = ("source", "learner")
REWARDS = ("strong_regret", "weak_regret", "regret_gap")
COSTS = ("strong_violation", "weak_violation", "violation_gap")
MULTIPLIERS = ("multiplier", "multiplier_mean", "optimal_multipliers")


def convert(data: xr.Dataset, units: str = "source") -> xr.Dataset:
    """The data set in the requested units; `data` itself if these are the learner's or both units are the same."""
    if units not in UNITS:
        raise ValueError(f"units = {units!r} is not valid; give 'source' or 'learner'.")
    if units == "learner" or in_source_units(data) or not has_units(data):
        return data
    import xarray as xr

    reward, cost = abs(data["reward_scale"]), abs(data["cost_scale"])
    factors: dict[Any, Any] = (
        dict.fromkeys(REWARDS, reward) | dict.fromkeys(COSTS, cost) | dict.fromkeys(MULTIPLIERS, reward / cost)
    )
    with xr.set_options(keep_attrs=True):
        converted = {name: _times(data[name], factor) for name, factor in factors.items() if name in data}
        if "optimum" in data:
            converted["optimum"] = data.optimum * data.reward_scale + data.reward_offset
        for name in ("threshold", "safe_cost"):
            if name in data:
                converted[name] = _times(data[name], data.cost_scale) + data.cost_offset
    return data.assign(converted).assign_attrs(shown_units="source")


def _times(values: xr.DataArray, factor: xr.DataArray) -> xr.DataArray:
    """The product, with the dimensions in the order of `values`."""
    return (values * factor).transpose(*values.dims)


def in_source_units(data: xr.Dataset) -> bool:
    """Whether `convert` has converted the data set to the units of the source."""
    return data.attrs.get("shown_units") == "source"


def has_units(data: xr.Dataset) -> bool:
    """Whether the source's units differ from the learner's or have names."""
    if "reward_scale" not in data:
        return False
    scaled = any((np.abs(data[name].values) != 1).any() for name in ("reward_scale", "cost_scale"))
    shifted = any((data[name].values != 0).any() for name in ("reward_offset", "cost_offset"))
    return scaled or shifted or bool(_names(data))


def reward_unit(data: xr.Dataset) -> str:
    """The unit of regret: its name in the source, or "reward"."""
    names = _names(data)
    return names[0] if names and in_source_units(data) else "reward"


def cost_unit(data: xr.Dataset, constraint: int | None = None) -> str:
    """The unit of violation of one constraint, or of all constraints if they agree: its name, or "cost"."""
    names = _names(data)[1:] if in_source_units(data) else []
    if constraint is not None:
        return names[constraint] if names else "cost"
    return names[0] if names and len(set(names)) == 1 else "cost"


def cost_units(data: xr.Dataset) -> list[str]:
    """The unit of each constraint's violation."""
    return [cost_unit(data, i) for i in range(data.sizes.get("constraint", 1))]


def remark(data: xr.Dataset) -> str:
    """The description of a table's units; "" if the source has no other units."""
    if not has_units(data):
        return ""
    if not in_source_units(data):
        return "in the learner's units, where rewards and costs lie in [0, 1]"
    reward, *costs = _names(data) or [""]
    named = f" (regret in {reward}, violation in {', '.join(dict.fromkeys(costs))})" if reward else ""
    return f"in the units of the source{named}"


def _names(data: xr.Dataset) -> list[str]:
    """The unit of the reward and of each constraint; [] if the source names none."""
    return json.loads(data.attrs.get("unit_names", "[]"))
