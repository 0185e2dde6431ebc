"""In which units a result is shown: those of its source, or the learner's, where rewards and costs lie in [0, 1].

A data set is computed and stored in the learner's units; `reward_scale`, `cost_scale` and their offsets in it lead back
to the source: original value = scale * value + offset. What is a difference of two values (regret, violation, gaps) is
multiplied by |scale| and never offset; a multiplier, in reward per cost, by |reward_scale| / |cost_scale|; a value
(OPT, thresholds) by both. rho is a margin over all constraints at once, which may have different units: it stays as
it is.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import xarray as xr

UNITS = ("source", "learner")
REWARDS = ("strong_regret", "weak_regret", "regret_gap")
COSTS = ("strong_violation", "weak_violation", "violation_gap")
MULTIPLIERS = ("multiplier", "multiplier_mean", "optimal_multipliers")


def shown(data: xr.Dataset, units: str = "source") -> xr.Dataset:
    """The data set in the units asked for; `data` itself where these are the learner's, or where nothing is scaled."""
    if units not in UNITS:
        raise ValueError(f"units = {units!r} is not known; give 'source' or 'learner'.")
    if units == "learner" or in_source_units(data) or not has_units(data):
        return data
    import xarray as xr

    reward, cost = abs(data["reward_scale"]), abs(data["cost_scale"])
    factors: dict[Any, Any] = (
        dict.fromkeys(REWARDS, reward) | dict.fromkeys(COSTS, cost) | dict.fromkeys(MULTIPLIERS, reward / cost)
    )
    with xr.set_options(keep_attrs=True):
        changed = {name: _times(data[name], factor) for name, factor in factors.items() if name in data}
        if "optimum" in data:
            changed["optimum"] = data.optimum * data.reward_scale + data.reward_offset
        for name in ("threshold", "safe_cost"):
            if name in data:
                changed[name] = _times(data[name], data.cost_scale) + data.cost_offset
    return data.assign(changed).assign_attrs(shown_units="source")


def _times(values: xr.DataArray, factor: xr.DataArray) -> xr.DataArray:
    """Scaled, with the axes where they were."""
    return (values * factor).transpose(*values.dims)


def in_source_units(data: xr.Dataset) -> bool:
    """Whether `shown` has brought it to the units of the source."""
    return data.attrs.get("shown_units") == "source"


def has_units(data: xr.Dataset) -> bool:
    """Whether the source's units differ from the learner's, or have names."""
    if "reward_scale" not in data:
        return False
    scaled = any((np.abs(data[name].values) != 1).any() for name in ("reward_scale", "cost_scale"))
    moved = any((data[name].values != 0).any() for name in ("reward_offset", "cost_offset"))
    return scaled or moved or bool(_names(data))


def reward_unit(data: xr.Dataset) -> str:
    """What regret is counted in, for an axis: "reward", or the unit's name where the source gave one."""
    names = _names(data)
    return names[0] if names and in_source_units(data) else "reward"


def cost_unit(data: xr.Dataset, constraint: int | None = None) -> str:
    """What violation is counted in: "cost", or the unit's name; of one constraint, or of all where they agree."""
    names = _names(data)[1:] if in_source_units(data) else []
    if constraint is not None:
        return names[constraint] if names else "cost"
    return names[0] if names and len(set(names)) == 1 else "cost"


def remark(data: xr.Dataset) -> str:
    """Which units a table is in, in words; "" where there is only one choice."""
    if not has_units(data):
        return ""
    if not in_source_units(data):
        return "in the learner's units, where rewards and costs lie in [0, 1]"
    names = _names(data)
    return "in the units of the source" + (f" (regret in {names[0]}, violation in {_and(names[1:])})" if names else "")


def _and(names: list[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def _names(data: xr.Dataset) -> list[str]:
    """The reward's unit, then one of each constraint; none where the source gave none."""
    return json.loads(data.attrs.get("unit_names", "[]"))
