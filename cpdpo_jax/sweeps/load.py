"""From stored blocks to results: one `Result` per environment and T with all learners, hparams and seeds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import xarray as xr

from cpdpo_jax.common.text import column_format, counted
from cpdpo_jax.results import units as unit
from cpdpo_jax.results.copies import without_copies
from cpdpo_jax.results.netcdf import Plain
from cpdpo_jax.results.result import METRICS, Result
from cpdpo_jax.results.statistics import bootstrap_mean
from cpdpo_jax.results.summary import format_worst, worst_constraint
from cpdpo_jax.results.tables import extra_knowledge, footnotes, format_table
from cpdpo_jax.simulation.options import OPTION_NAMES
from cpdpo_jax.sweeps.config_text import environment_label
from cpdpo_jax.sweeps.store import Store

COMBINED = ("learner", "instance", "hparams", "seed", "event", "quantity")  # dimensions along which blocks differ
LABELS = ("instance_name", "extra_knowledge")  # labels of instances and of learners


class Table(NamedTuple):
    """All results on one environment for one T."""

    environment: str  # label; includes options of the run that differ between tables
    episodes: int
    result: Result


def load_runs(stores: Iterable[Store]) -> list[Table]:
    """The finished blocks of several run directories, combined."""
    groups: dict[tuple[str, int, str], list[Plain]] = {}
    for store in stores:
        for key, block in store.blocks.items():
            if store.is_done(key):
                shared = json.dumps({name: block.get(name) for name in OPTION_NAMES})
                group = (environment_label(block["environment"]), block["episodes"], shared)
                groups.setdefault(group, []).append(store.read(key))
    differing = [x for x in OPTION_NAMES if len({json.dumps(json.loads(shared)[x]) for _, _, shared in groups}) > 1]
    tables, labels = [], _without_paths({environment for environment, _, _ in groups})
    for (environment, episodes, shared), parts in groups.items():
        options = "".join(f" ({name} {value})" for name in differing if (value := json.loads(shared)[name]) is not None)
        tables.append(Table(labels[environment] + options, episodes, Result(combine(parts))))
    return sorted(tables, key=lambda table: (table.environment, table.episodes))


def _without_paths(labels: set[str]) -> dict[str, str]:
    """Short labels: a CMDP's file by its name, with its hash only where two files share the name."""
    files = {label: match for label in labels if (match := re.match(r"(?:.*/)?([^/]+)\.npz:sha256=(\w+)", label))}
    names = [match[1] for match in files.values()]
    short = {label: f"{m[1]} ({m[2][:6]})" if names.count(m[1]) > 1 else m[1] for label, m in files.items()}
    return {label: short.get(label, label) for label in labels}


def combine(parts: list[Plain]) -> xr.Dataset:
    """One data set of all blocks of an environment and T; NaN where there is no block."""
    first = parts[0]

    def labels(part: Plain, name: str) -> list:
        return part.variables[name][1].tolist() if name in part.variables else []

    values = {dim: list(dict.fromkeys(x for part in parts for x in labels(part, dim))) for dim in COMBINED}
    values = {
        dim: entries for dim, entries in values.items() if entries or dim in first.variables
    }  # monitor's dimensions
    values["instance"].sort()
    values["seed"].sort()
    position = {dim: {value: i for i, value in enumerate(entries)} for dim, entries in values.items()}
    variables = {}
    for name in dict.fromkeys(name for part in parts for name in part.variables if name not in part.coords):
        dims, like, attrs = next(part.variables[name] for part in parts if name in part.variables)
        shape = [len(values[dim]) if dim in values else size for dim, size in zip(dims, like.shape, strict=True)]
        full = np.full(shape, np.nan)
        for part in parts:
            if name in part.variables:
                block = part.variables[name][1]
                indices = [
                    [position[dim][label] for label in labels(part, dim)] if dim in position else range(size)
                    for dim, size in zip(dims, block.shape, strict=True)
                ]
                full[np.ix_(*indices)] = block
        variables[name] = (dims, full, attrs)

    def mapping(dim: str, coordinate: str) -> dict:
        return {x: y for p in parts for x, y in zip(labels(p, dim), labels(p, coordinate), strict=True)}

    names = mapping("instance", "instance_name")
    extra = {x: "" for part in parts for x in labels(part, "learner")}  # older blocks lack the coordinate
    for part in parts:
        if "extra_knowledge" in part.variables:
            extra |= dict(zip(labels(part, "learner"), labels(part, "extra_knowledge"), strict=True))
    coords: dict = {name: first.variables[name] for name in first.coords if name not in (*COMBINED, *LABELS)}
    for name in first.coords:  # options that are axes
        if name != "hparams" and first.variables[name][0] == ("hparams",):
            option = mapping("hparams", name)
            coords[name] = ("hparams", [option[x] for x in values["hparams"]])
    coords |= values | {"instance_name": ("instance", [str(names[x]) for x in values["instance"]])}
    coords["extra_knowledge"] = ("learner", [str(extra[x]) for x in values["learner"]])
    attrs = {name: value for name, value in first.attrs.items() if not name.startswith("block")}
    about = {str(labels(part, "instance")[0]): part.attrs.get("description", "") for part in parts}
    attrs["descriptions"] = json.dumps(about)
    attrs.pop("description", None)
    kinds = sorted({str(part.attrs.get("rounding", "")) for part in parts})
    attrs["rounding"] = kinds[0] if len(kinds) == 1 else json.dumps(kinds)  # several kinds of machine
    attrs["seconds"] = sum(part.attrs["seconds"] for part in parts)
    return xr.Dataset(variables, coords=coords, attrs=attrs)


def in_units(tables: list[Table], units: str = "source") -> list[Table]:
    """The tables in their original units, or in the learner's."""
    return [table._replace(result=Result(unit.convert(table.result.data, units))) for table in tables]


def shown(tables: list[Table]) -> list[Table]:
    """The tables with equal curves of a learner once, as in all tables and figures; see `without_copies`."""
    return [table._replace(result=Result(without_copies(table.result.data))) for table in tables]


def rows(tables: list[Table]) -> list[dict]:
    """The metrics at T of every learner, instance and hparams: mean, 95 % interval and median over seeds.

    They are in the units of the tables (see `in_units`), which each row names.
    """
    records = []
    for table in tables:
        ends = {name: table.result.metric(name).isel(episode=-1) for name in METRICS}
        data = table.result.data
        for learner in data.learner.values:
            for i, instance in enumerate(data.instance.values):
                for hparams in data.hparams.values:
                    at = {"learner": learner, "instance": instance, "hparams": hparams}
                    first_non_finite = data.first_non_finite.sel(at).values
                    run = np.isfinite(first_non_finite)
                    if not run.any():
                        continue
                    row = {
                        "environment": table.environment, "episodes": table.episodes, "instance": int(instance),
                        "instance_name": str(data.instance_name.values[i]), "learner": str(learner),
                        "hparams": str(hparams), "units": unit.remark(data), "seeds": int(run.sum()),
                        "non_finite": int((first_non_finite > 0).sum()),
                        "extra_knowledge": extra_knowledge(data, learner),
                        "worst_constraint": _worst(data, at),
                    }  # fmt: skip
                    for name, end in ends.items():
                        values = end.sel(at).values
                        values = values[np.isfinite(values)]
                        low, high = bootstrap_mean(values) if len(values) else (np.nan, np.nan)
                        mean, median = (values.mean(), np.median(values)) if len(values) else (np.nan, np.nan)
                        statistics = {"mean": mean, "low": low, "high": high, "median": median}
                        row[name] = {key: _plain(value) for key, value in statistics.items()}
                    records.append(row)
    return records


def _worst(data: xr.Dataset, at: dict) -> str:
    """The constraint with the largest strong violation as text; "" for a single constraint."""
    names = unit.cost_units(data)
    return format_worst(*worst_constraint(data, at, "strong_violation"), names) if len(names) > 1 else ""


def _plain(value: float) -> float | None:
    """None for NaN, which JSON lacks."""
    return float(value) if np.isfinite(value) else None


def format_rows(all_rows: list[dict], width: int = 0) -> str:
    """The rows as text: one table per environment and T with the metrics ± half the width of their intervals.

    The line above a table has what its rows share. A table wider than `width` characters (0: no limit) is stacked, with
    each learner above its numbers.
    """
    several = len({(row["environment"], row["instance"]) for row in all_rows}) > len(
        {row["environment"] for row in all_rows}
    )
    groups: dict[str, list[dict]] = {}
    for row in all_rows:
        name = f"{row['environment']}, instance {row['instance']}" if several else row["environment"]
        seeds = {other["seeds"] for other in all_rows}
        n_seeds = counted(row["seeds"], "seed") if len(seeds) == 1 else ""
        shared = [name, f"T = {row['episodes']:,}", n_seeds, row["units"]]
        groups.setdefault(", ".join(filter(None, shared)), []).append(row | {"several": len(seeds) > 1})
    several_hparams = {row["hparams"] for row in all_rows} != {"tuned"}
    tables = "\n\n".join(f"{head}\n{_format_group(rows, several_hparams, width)}" for head, rows in groups.items())
    meaning = ["±: half the width of the 95 % bootstrap interval over seeds."] if "±" in tables else []
    return "\n".join([tables, *meaning, *footnotes(row["extra_knowledge"] for row in all_rows)])


def _format_group(group: list[dict], several_hparams: bool, width: int) -> str:
    """The table of one environment and T."""
    heads = [name.replace("_", " ") for name in METRICS]
    worst = any(row["worst_constraint"] for row in group)
    heads += ["worst constraint"] * worst
    lines = [["learner", *heads]]
    shown = {name: _format([row[name] for row in group]) for name in METRICS}
    for row in group:
        learner = row["learner"] + "*" * bool(row["extra_knowledge"])
        name = ", ".join([learner, *([row["hparams"]] if several_hparams else [])])
        name += f" ({counted(row['seeds'], 'seed')})" if row["several"] else ""
        cells = [_cell(row[metric], shown[metric]) for metric in METRICS]
        lines.append([name, *cells, *[row["worst_constraint"]] * worst])
    text = format_table(lines)
    if not width or max(map(len, text.splitlines())) <= width:
        return text
    columns = [max(len(line[c]) for line in lines) for c in range(1, len(heads) + 1)]
    fitting = max(1, min(len(heads), (width - 2) // (max(columns) + 2)))  # columns that fit into the width
    stacked = []
    for line in lines[1:]:
        stacked.append(line[0])
        pairs = [f"{head} {cell}" for head, cell in zip(heads, line[1:], strict=True)]
        if fitting == len(heads):
            stacked.append(
                "  " + "  ".join(cell.ljust(size) for cell, size in zip(line[1:], columns, strict=True)).rstrip()
            )
        else:
            stacked += ["  " + pair for pair in pairs]
    names = ["  " + "  ".join(head.ljust(size) for head, size in zip(heads, columns, strict=True)).rstrip()]
    return "\n".join([*(names if fitting == len(heads) else []), *stacked])


def _format(column: list[dict[str, float | None]]) -> Callable[[float], str]:
    """The common format of a column's means and intervals."""
    return column_format(cell[key] for cell in column for key in ("mean", "low", "high") if cell[key] is not None)  # pyright: ignore[reportArgumentType]


def _cell(statistics: dict[str, float | None], shown: Callable[[float], str]) -> str:
    mean, low, high = statistics["mean"], statistics["low"], statistics["high"]
    if mean is None:
        return "not finite"
    return shown(mean) if low is None or high is None else f"{shown(mean)} ± {shown((high - low) / 2)}"
