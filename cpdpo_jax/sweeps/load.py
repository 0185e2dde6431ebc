"""From stored blocks to results: one `Result` per environment and T, whatever learners, settings and seeds it has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import xarray as xr

from cpdpo_jax.common.words import number
from cpdpo_jax.results import units as unit
from cpdpo_jax.results.netcdf import Plain
from cpdpo_jax.results.result import METRICS, Result
from cpdpo_jax.results.statistics import bootstrap_mean
from cpdpo_jax.results.tables import extra_knowledge, footnotes, format_table
from cpdpo_jax.simulation.options import OPTION_NAMES
from cpdpo_jax.sweeps.config import show_environment
from cpdpo_jax.sweeps.store import Store

GROWING = ("learner", "instance", "setting", "seed")  # dimensions along which blocks lie side by side
BESIDE = ("instance_name", "extra_knowledge")  # labels of instances and of learners


class Table(NamedTuple):
    """All results on one environment for one T."""

    environment: str  # label; it names other parameters too where they differ
    episodes: int
    result: Result


def load_runs(stores: Iterable[Store]) -> list[Table]:
    """The finished blocks of some run directories, put together."""
    groups: dict[tuple[str, int, str], list[Plain]] = {}
    for store in stores:
        for key, block in store.blocks.items():
            if store.is_done(key):
                shared = json.dumps({name: block.get(name) for name in OPTION_NAMES})
                at = (show_environment(block["environment"]), block["episodes"], shared)
                groups.setdefault(at, []).append(store.read(key))
    differing = [name for name in OPTION_NAMES if len({json.dumps(json.loads(at[2])[name]) for at in groups}) > 1]
    tables, called = [], _without_paths({at[0] for at in groups})
    for (environment, episodes, shared), parts in groups.items():
        more = "".join(f" ({name} {json.loads(shared)[name]})" for name in differing)
        tables.append(Table(called[environment] + more, episodes, Result(combine(parts))))
    return sorted(tables, key=lambda table: (table.environment, table.episodes))


def _without_paths(labels: set[str]) -> dict[str, str]:
    """Labels as people read them: of a CMDP's file its name alone, and its hash only where two files share the name."""
    files = {label: match for label in labels if (match := re.match(r"(?:.*/)?([^/]+)\.npz:sha256=(\w+)", label))}
    names = [match[1] for match in files.values()]
    short = {label: f"{m[1]} ({m[2][:6]})" if names.count(m[1]) > 1 else m[1] for label, m in files.items()}
    return {label: short.get(label, label) for label in labels}


def combine(parts: list[Plain]) -> xr.Dataset:
    """Blocks of one environment and T in one data set; NaN where there is no block."""
    first = parts[0]

    def labels(part: Plain, name: str) -> list:
        return part.variables[name][1].tolist()

    values = {dim: list(dict.fromkeys(x for part in parts for x in labels(part, dim))) for dim in GROWING}
    values["instance"].sort()
    values["seed"].sort()
    position = {dim: {value: i for i, value in enumerate(of)} for dim, of in values.items()}
    variables = {}
    for name in dict.fromkeys(name for part in parts for name in part.variables if name not in part.coords):
        dims, like, attrs = next(part.variables[name] for part in parts if name in part.variables)
        shape = [len(values[dim]) if dim in values else size for dim, size in zip(dims, like.shape, strict=True)]
        full = np.full(shape, np.nan)
        for part in parts:
            if name in part.variables:
                own = part.variables[name][1]
                places = [
                    [position[dim][label] for label in labels(part, dim)] if dim in position else range(size)
                    for dim, size in zip(dims, own.shape, strict=True)
                ]
                full[np.ix_(*places)] = own
        variables[name] = (dims, full, attrs)
    named = {x: y for one in parts for x, y in zip(labels(one, "instance"), labels(one, "instance_name"), strict=True)}
    told = {x: "" for one in parts for x in labels(one, "learner")}  # older blocks do not say
    for one in parts:
        if "extra_knowledge" in one.variables:
            told |= dict(zip(labels(one, "learner"), labels(one, "extra_knowledge"), strict=True))
    coords: dict = {name: first.variables[name] for name in first.coords if name not in (*GROWING, *BESIDE)}
    coords |= values | {"instance_name": ("instance", [str(named[x]) for x in values["instance"]])}
    coords["extra_knowledge"] = ("learner", [str(told[x]) for x in values["learner"]])
    attrs = {name: value for name, value in first.attrs.items() if not name.startswith("block")}
    about = {str(labels(part, "instance")[0]): part.attrs.get("description", "") for part in parts}
    attrs["descriptions"] = json.dumps(about)
    attrs.pop("description", None)
    kinds = sorted({str(part.attrs.get("rounding", "")) for part in parts})
    attrs["rounding"] = kinds[0] if len(kinds) == 1 else json.dumps(kinds)  # of several kinds of machine
    attrs["seconds"] = sum(part.attrs["seconds"] for part in parts)
    return xr.Dataset(variables, coords=coords, attrs=attrs)


def in_units(tables: list[Table], units: str = "source") -> list[Table]:
    """The tables in the units of their sources, or in the learner's."""
    return [table._replace(result=Result(unit.shown(table.result.data, units))) for table in tables]


def rows(tables: list[Table]) -> list[dict]:
    """The metrics at T of every learner, instance and setting: mean, 95 % interval and median over seeds.

    In the units that the tables are in (see `in_units`), which each row names.
    """
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
                        "setting": str(setting), "units": unit.remark(data), "seeds": int(run.sum()),
                        "non_finite": int((first_bad > 0).sum()),
                        "extra_knowledge": extra_knowledge(data, learner),
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


def table_of(all_rows: list[dict], width: int = 0) -> str:
    """The rows for a terminal: strong and weak regret and violation with the interval's half width.

    A table for every environment and T, with what its rows share in the line above it. Where it is wider than `width`
    characters (0: no limit), a learner stands above its numbers.
    """
    several = len({(row["environment"], row["instance"]) for row in all_rows}) > len(
        {row["environment"] for row in all_rows}
    )
    groups: dict[str, list[dict]] = {}
    for row in all_rows:
        where = f"{row['environment']} #{row['instance']}" if several else row["environment"]
        seeds = {one["seeds"] for one in all_rows}
        shared = [where, f"T = {row['episodes']:,}", f"{row['seeds']} seeds" if len(seeds) == 1 else "", row["units"]]
        groups.setdefault(", ".join(filter(None, shared)), []).append(row | {"several": len(seeds) > 1})
    settings = {row["setting"] for row in all_rows} != {"tuned"}
    tables = "\n\n".join(f"{head}\n{_group(rows, settings, width)}" for head, rows in groups.items())
    return "\n".join([tables, *footnotes(row["extra_knowledge"] for row in all_rows)])


def _group(group: list[dict], settings: bool, width: int) -> str:
    """The table of one environment and T."""
    heads = [name.replace("_", " ") for name in METRICS]
    lines = [["learner", *heads]]
    for row in group:
        learner = row["learner"] + "*" * bool(row["extra_knowledge"])
        name = ", ".join([learner, *([row["setting"]] if settings else [])])
        name += f" ({row['seeds']} seeds)" if row["several"] else ""
        lines.append([name, *(_cell(row[metric]) for metric in METRICS)])
    text = format_table(lines)
    if not width or max(map(len, text.splitlines())) <= width:
        return text
    columns = [max(len(line[c]) for line in lines) for c in range(1, len(heads) + 1)]
    across = max(1, min(len(heads), (width - 2) // (max(columns) + 2)))  # columns that fit side by side
    stacked = []
    for line in lines[1:]:
        stacked.append(line[0])
        pairs = [f"{head} {cell}" for head, cell in zip(heads, line[1:], strict=True)]
        if across == len(heads):
            stacked.append(
                "  " + "  ".join(cell.ljust(size) for cell, size in zip(line[1:], columns, strict=True)).rstrip()
            )
        else:
            stacked += ["  " + pair for pair in pairs]
    names = ["  " + "  ".join(head.ljust(size) for head, size in zip(heads, columns, strict=True)).rstrip()]
    return "\n".join([*(names if across == len(heads) else []), *stacked])


def _cell(of: dict[str, float | None]) -> str:
    mean, low, high = of["mean"], of["low"], of["high"]
    if mean is None:
        return "not finite"
    return number(mean) if low is None or high is None else f"{number(mean)} ± {number((high - low) / 2, 2)}"
