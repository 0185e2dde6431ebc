"""From stored blocks to results: one `Result` per environment and T, whatever learners, settings and seeds it has."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import xarray as xr

from cpdpo_jax.results.result import METRICS, Result
from cpdpo_jax.results.statistics import bootstrap_mean
from cpdpo_jax.results.tables import format_table
from cpdpo_jax.simulation.options import OPTION_NAMES
from cpdpo_jax.sweeps.config import show_environment
from cpdpo_jax.sweeps.store import Store

GROWING = ("learner", "instance", "setting", "seed")  # dimensions along which blocks lie side by side


class Table(NamedTuple):
    """All results on one environment for one T."""

    environment: str  # label; it names other parameters too where they differ
    episodes: int
    result: Result


def load_runs(stores: Iterable[Store]) -> list[Table]:
    """The finished blocks of some run directories, put together."""
    groups: dict[tuple[str, int, str], list[xr.Dataset]] = {}
    seen: dict[tuple, xr.Dataset] = {}
    for store in stores:
        for key, block in store.blocks.items():
            if store.is_done(key):
                shared = json.dumps({name: block[name] for name in OPTION_NAMES})
                at = (show_environment(block["environment"]), block["episodes"], shared)
                part = _read(store.result_path(key), seen.get((*at, block["learner"])))
                seen.setdefault((*at, block["learner"]), part)
                groups.setdefault(at, []).append(part)
    differing = [name for name in OPTION_NAMES if len({json.dumps(json.loads(at[2])[name]) for at in groups}) > 1]
    tables = []
    for (environment, episodes, shared), parts in groups.items():
        more = "".join(f" ({name} {json.loads(shared)[name]})" for name in differing)
        tables.append(Table(environment + more, episodes, Result(combine(parts))))
    return sorted(tables, key=lambda table: (table.environment, table.episodes))


def _read(path: Path, like: xr.Dataset | None) -> xr.Dataset:
    """A stored block. Where one of the same kind was read before, its labels serve again: ten times as fast."""
    if like is None:
        return Result.load(path).data
    variables = {}
    with h5py.File(path) as file:
        for name in map(str, like.variables):
            array: Any = file[name]
            values = array.asstr()[()] if h5py.check_string_dtype(array.dtype) else array[()]
            variables[name] = (like[name].dims, values, like[name].attrs)
        attrs = like.attrs | {name: file.attrs[name] for name in ("seconds", "description")}
    names = [str(name) for name in like.coords]
    coords = {name: variables.pop(name) for name in names}
    return xr.Dataset(variables, coords=coords, attrs=attrs)


def combine(parts: list[xr.Dataset]) -> xr.Dataset:
    """Blocks of one environment and T in one data set; NaN where there is no block."""
    first = parts[0]
    values = {dim: list(dict.fromkeys(x for part in parts for x in part[dim].values.tolist())) for dim in GROWING}
    values["instance"].sort()
    values["seed"].sort()
    position = {dim: {value: i for i, value in enumerate(of)} for dim, of in values.items()}

    def places(part: xr.Dataset, dim: str) -> list[int]:
        if dim not in position:
            return list(range(part.sizes[dim]))
        return [position[dim][value] for value in part[dim].values.tolist()]

    variables = {}
    for name in dict.fromkeys(name for part in parts for name in part.data_vars):
        like = next(part[name] for part in parts if name in part)
        full = np.full([len(values[str(dim)]) if dim in values else like.sizes[dim] for dim in like.dims], np.nan)
        for part in parts:
            if name in part:
                full[np.ix_(*(places(part, str(dim)) for dim in like.dims))] = part[name].values
        variables[name] = (like.dims, full, like.attrs)
    named = {x: y for part in parts for x, y in zip(part.instance.values, part.instance_name.values, strict=True)}
    coords = {dim: first[dim] for dim in first.coords if dim not in (*GROWING, "instance_name")}
    coords |= values | {"instance_name": ("instance", [str(named[x]) for x in values["instance"]])}
    attrs = {name: value for name, value in first.attrs.items() if not name.startswith("block")}
    about = {str(part.instance.values[0]): part.attrs.get("description", "") for part in parts}
    attrs["descriptions"] = json.dumps(about)
    attrs.pop("description", None)
    attrs["seconds"] = sum(part.attrs["seconds"] for part in parts)
    return xr.Dataset(variables, coords=coords, attrs=attrs)


def rows(tables: list[Table]) -> list[dict]:
    """The metrics at T of every learner, instance and setting: mean, 95 % interval and median over seeds."""
    out = []
    for table in tables:
        ends = {name: table.result.metric(name).isel(episode=-1) for name in METRICS}
        data = table.result.data
        for learner in data.learner.values:
            for i, instance in enumerate(data.instance.values):
                for setting in data.setting.values:
                    at = {"learner": learner, "instance": instance, "setting": setting}
                    first_bad = data.first_non_finite.sel(at).values
                    run = np.isfinite(first_bad)
                    if not run.any():
                        continue
                    row = {
                        "environment": table.environment, "episodes": table.episodes, "instance": int(instance),
                        "instance_name": str(data.instance_name.values[i]), "learner": str(learner),
                        "setting": str(setting), "seeds": int(run.sum()), "non_finite": int((first_bad > 0).sum()),
                    }  # fmt: skip
                    for name, end in ends.items():
                        values = end.sel(at).values
                        values = values[np.isfinite(values)]
                        low, high = bootstrap_mean(values) if len(values) else (np.nan, np.nan)
                        mean, median = (values.mean(), np.median(values)) if len(values) else (np.nan, np.nan)
                        four = {"mean": mean, "low": low, "high": high, "median": median}
                        row[name] = {of: _plain(value) for of, value in four.items()}
                    out.append(row)
    return out


def _plain(value: float) -> float | None:
    """JSON has no NaN."""
    return float(value) if np.isfinite(value) else None


def table_of(all_rows: list[dict]) -> str:
    """The rows for a terminal: strong and weak regret and violation with the interval's half width."""
    several = len({(row["environment"], row["instance"]) for row in all_rows}) > len(
        {r["environment"] for r in all_rows}
    )
    head = ["environment", "T", "learner", "setting", "seeds", *(name.replace("_", " ") for name in METRICS)]
    lines = [head]
    for row in all_rows:
        where = f"{row['environment']} #{row['instance']}" if several else row["environment"]
        cells = [_cell(row[name]) for name in METRICS]
        lines.append([where, f"{row['episodes']:,}", row["learner"], row["setting"], str(row["seeds"]), *cells])
    return format_table(lines)


def _cell(of: dict[str, float | None]) -> str:
    mean, low, high = of["mean"], of["low"], of["high"]
    if mean is None:
        return "not finite"
    return f"{mean:.4g}" if low is None or high is None else f"{mean:.4g} ± {(high - low) / 2:.2g}"
