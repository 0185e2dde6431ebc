"""`concat`: joins results of separate runs along learner, hparams, seed, instance, T, rho, delta or safety."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cpdpo_jax.common import axes
from cpdpo_jax.common.axes import AXES
from cpdpo_jax.results.result import Result

if TYPE_CHECKING:
    import xarray as xr

SHARED = ("key", "horizon", "dtype", "noise", "layers", "states", "actions", "unit_names", "shown_units")  # attributes
DIMS = ("learner", "instance", "hparams", "seed", "episode", "event", "quantity")  # dimensions to join


def concat(results: Sequence[Result]) -> Result:
    """Join results that differ in learners, hparams, seeds, instances, T, rho, delta or safety.

    Missing combinations are NaN. Results must have the same key, horizon, dtype and shape, because `compare` pairs
    seeds by common random numbers. An instance is identified by its position, name, thresholds and optimum; a different
    one at the same position gets the next free number. If rho, delta or safety differ, each entry of
    hparams is labelled "tuned, rho=0.1", as in a run with several values, and the coordinate rho has the value. If T
    differs, each entry is labelled "tuned, T = 1,000" and the coordinate T has its number of episodes; tables show each
    entry at its own T.
    Runs may overlap where their values are equal.
    """
    if not results:
        raise ValueError("results is empty; give concat at least one Result.")
    for i, result in enumerate(results):
        if not isinstance(result, Result):
            raise ValueError(f"results[{i}] is a {type(result).__name__}; give Results, such as those of cp.simulate.")
    parts = [result.data for result in results]
    _check(parts)
    for name in AXES:
        parts = _with_option(parts, name)
    parts = _with_horizons(parts)
    names, parts = _with_instances(parts)
    extra = {str(x): str(y) for part in parts for x, y in zip(part.learner.values, _extra(part), strict=True)}
    options = {name: {str(s): value for part in parts
                          for s, value in zip(part.hparams.values, part[name].values.tolist(), strict=True)}
                   for name in ("T", *AXES) if name in parts[0].coords}  # fmt: skip
    order = {dim: list(dict.fromkeys(x for part in parts if dim in part.coords for x in part[dim].values.tolist()))
             for dim in DIMS}  # fmt: skip
    for dim in ("seed", "episode", "instance"):
        order[dim].sort()
    order = {dim: labels for dim, labels in order.items() if labels}
    bare = [part.drop_vars([name for name in part.coords if name not in part.dims]) for part in parts]
    joined = bare[0]
    for i, part in enumerate(bare[1:], 1):
        _check_overlap(joined, part, i)
        joined = joined.combine_first(part)
    joined = joined.reindex(order)
    joined = joined.assign_coords(
        instance_name=("instance", [names[x] for x in order["instance"]]),
        extra_knowledge=("learner", [extra[x] for x in order["learner"]]),
    )
    for name, values in options.items():
        joined = joined.assign_coords({name: ("hparams", [values[x] for x in order["hparams"]])})
    joined.attrs = _attributes(parts)
    return Result(joined)


def _check(parts: list[xr.Dataset]) -> None:
    """Raise if results cannot be compared seed by seed, or differ in shape."""
    for i, part in enumerate(parts[1:], 1):
        for name in SHARED:
            first, value = parts[0].attrs.get(name), part.attrs.get(name)
            if first != value:
                raise ValueError(
                    f"results[{i}] has {name} = {value}, but results[0] has {first}; join results that share it, or "
                    "keep them in a list."
                )
        if part.sizes["constraint"] != parts[0].sizes["constraint"]:
            m, n = part.sizes["constraint"], parts[0].sizes["constraint"]
            raise ValueError(
                f"results[{i}] has {m} constraints, but results[0] has {n}; join results of the same shape."
            )


def _with_option(parts: list[xr.Dataset], name: str) -> list[xr.Dataset]:
    """Make an option such as rho a coordinate and part of the hparams' labels, if it differs."""
    values = [part.attrs.get(name) for part in parts]  # None: a coordinate, or missing in results of older versions
    if len({value for value in values if value is not None}) < 2 and not any(name in part.coords for part in parts):
        return parts
    out = []
    for part, value in zip(parts, values, strict=True):
        if name not in part.coords:
            if value is None:
                raise ValueError(f"a result has no attribute {name}; run it again, or leave it out.")
            number = _number(value)
            option = axes.label(name, value if number is None else number)
            labels = [f"{label}, {option}" for label in part.hparams.values]
            coordinate = ("hparams", [np.nan if number is None else number] * len(labels))
            part = part.assign_coords({"hparams": labels, name: coordinate})
            part.attrs.pop(name)
        out.append(part)
    return out


def _number(value: Any) -> float | None:
    """The value of an attribute as a number; None for a text such as "solve"."""
    try:
        return float(value)
    except ValueError:
        return None


def _with_horizons(parts: list[xr.Dataset]) -> list[xr.Dataset]:
    """Make T a coordinate and part of the hparams' labels, if it differs."""
    times = [int(part.attrs["episodes"]) for part in parts]
    if len(set(times)) == 1 and not any("T" in part.coords for part in parts):
        return parts
    out = []
    for part, episodes in zip(parts, times, strict=True):
        if "T" not in part.coords:
            labels = [f"{label}, T = {episodes:,}" for label in part.hparams.values]
            part = part.assign_coords(hparams=labels).assign_coords(T=("hparams", [episodes] * len(labels)))
        out.append(part)
    return out


def _with_instances(parts: list[xr.Dataset]) -> tuple[dict[int, str], list[xr.Dataset]]:
    """The name of each instance, and the parts with a unique number for each instance."""
    known: dict[int, tuple] = {}
    names: dict[int, str] = {}
    out = []
    for part in parts:
        labels = []
        for i, label in enumerate(part.instance.values.tolist()):
            selected = part.isel(instance=i)
            values = [(str(key), np.asarray(selected[key]).tobytes()) for key in sorted(map(str, selected.data_vars))
                      if "instance" in part[key].dims and set(selected[key].dims) <= {"constraint"}]  # fmt: skip
            name = str(part.instance_name.values[i])
            identity = (name, values)
            if known.get(label, identity) != identity:
                label = next((k for k, other in known.items() if other == identity), max(known) + 1)
            known[label], names[label] = identity, name
            labels.append(label)
        out.append(part.assign_coords(instance=labels))
    return names, out


def _check_overlap(joined: xr.Dataset, part: xr.Dataset, i: int) -> None:
    """Raise if both have values for the same run and these differ."""
    import xarray as xr

    a, b = xr.align(joined["strong_regret"], part["strong_regret"], join="inner")
    differ = (a != b.transpose(*a.dims)) & a.notnull() & b.notnull()
    if differ.any():
        at = {
            dim: differ[dim].values[k].item() for dim, k in zip(differ.dims, np.argwhere(differ.values)[0], strict=True)
        }
        raise ValueError(
            f"results[{i}] and an earlier one both have learner {at['learner']!r}, hparams {at['hparams']!r}, instance "
            f"{at['instance']} and seed {at['seed']}, with different values; join runs of the same learner once."
        )


def _extra(part: xr.Dataset) -> list[str]:
    return part.extra_knowledge.values.tolist() if "extra_knowledge" in part.coords else [""] * part.sizes["learner"]


def _attributes(parts: list[xr.Dataset]) -> dict[str, Any]:
    """The attributes that all parts share, the sum of seconds, the maximum of episodes and the list of versions."""
    first = parts[0].attrs
    attrs = {name: value for name, value in first.items() if all(_same(part.attrs.get(name), value) for part in parts)}
    attrs["episodes"] = max(int(part.attrs["episodes"]) for part in parts)
    attrs["interrupted"] = max(int(part.attrs["interrupted"]) for part in parts)
    if "seconds" in first:
        attrs["seconds"] = sum(part.attrs.get("seconds", 0.0) for part in parts)
    if "versions" not in attrs and "versions" in first:
        attrs["versions"] = json.dumps(list(dict.fromkeys(str(part.attrs.get("versions")) for part in parts)))
    return attrs


def _same(a: Any, b: Any) -> bool:
    """Whether two attributes are present and equal."""
    return a is not None and bool(np.all(np.asarray(a) == np.asarray(b)))
