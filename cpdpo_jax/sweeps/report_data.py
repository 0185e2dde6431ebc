"""The numbers of `report.html`, as plain values that JSON can hold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from cpdpo_jax.results import figures, units
from cpdpo_jax.results.result import METRICS, Result
from cpdpo_jax.results.statistics import bootstrap_mean
from cpdpo_jax.sweeps.load import Table, rows
from cpdpo_jax.sweeps.store import Store

MOST_INSTANCES = 8  # of one environment that have figures; the table has all


def payload(stores: list[Store], tables: list[Table]) -> dict[str, Any]:
    """All that the page shows."""
    all_rows = rows(tables)
    several = {table.environment for table in tables if table.result.data.sizes["instance"] > 1}
    for row in all_rows:
        row["place"] = _place(row["environment"], row["instance"], row["environment"] in several)
    return {
        "subtitle": _subtitle(all_rows),
        "colours": figures.COLOURS,
        "learners": list(dict.fromkeys(row["learner"] for row in all_rows)),
        "settings": list(dict.fromkeys(row["setting"] for row in all_rows)),
        "rows": all_rows,
        "panels": [_panel(table, one, i) for table, one, i in panels(tables)],
        "growth": [line for group in growing(tables) for line in _growth(group)],
        "runs": [_run(store) for store in stores],
        "figures": _how(stores),
    }


def _place(environment: str, instance: int, several: bool) -> str:
    """What an instance is called on the page."""
    return f"{environment} #{instance}" if several else environment


def _subtitle(all_rows: list[dict[str, Any]]) -> str:
    def count(names: list[str], one: str) -> str:
        return f"{len(names)} {one}{'s' if len(names) > 1 else ''}"

    def of(name: str) -> list[Any]:
        return sorted({row[name] for row in all_rows})

    seeds = " to ".join(f"{n:,}" for n in dict.fromkeys((of("seeds")[0], of("seeds")[-1])))
    times = ", ".join(f"{t:,}" for t in of("episodes"))
    return f"{count(of('learner'), 'learner')} on {count(of('place'), 'environment')}, T = {times}, {seeds} seeds each"


def panels(tables: list[Table]) -> Iterator[tuple[Table, Result, int]]:
    """Every table's instances, one by one."""
    for table in tables:
        for i, instance in enumerate(table.result.data.instance.values[:MOST_INSTANCES]):
            yield table, Result(table.result.data.isel(instance=[i])), int(instance)


def growing(tables: list[Table]) -> list[list[Table]]:
    """Tables of one environment that differ in T and in nothing else."""
    groups: dict[str, list[Table]] = {}
    for table in tables:
        groups.setdefault(table.environment, []).append(table)

    def lines(table: Table) -> tuple:
        return tuple(tuple(table.result.data[dim].values.tolist()) for dim in ("learner", "instance", "setting"))

    return [group for group in groups.values() if len(group) > 1 and len({lines(table) for table in group}) == 1]


def _panel(table: Table, result: Result, instance: int) -> dict[str, Any]:
    data = result.data
    lines = []
    for learner in data.learner.values:
        for setting in data.setting.values:
            of = {"learner": learner, "instance": instance, "setting": setting}
            seeds = result.metric("strong_regret").sel(of).notnull().any("episode").values
            if not seeds.any():
                continue
            line: dict[str, Any] = {"learner": str(learner), "setting": str(setting)}
            for name in METRICS:
                values = result.metric(name).sel(of).transpose("episode", "seed").values[:, seeds]
                low, high = bootstrap_mean(values)
                line[name] = {"mean": _numbers(values.mean(axis=1)), "low": _numbers(low), "high": _numbers(high)}
            for name, source in (("multipliers", "multiplier"), ("violations", "strong_violation")):
                values = data[source].sel(of).transpose("constraint", "episode", "seed").values[..., seeds]
                line[name] = [_numbers(one) for one in values.mean(axis=-1)]
            lines.append(line)
    return {
        "place": _place(table.environment, instance, table.result.data.sizes["instance"] > 1),
        "units": units.remark(data),
        "reward_unit": units.reward_unit(data),
        "cost_unit": units.cost_unit(data),
        "environment": table.environment,
        "instance": instance,
        "episodes": table.episodes,
        "constraints": data.sizes["constraint"],
        "x": data.episode.values.tolist(),
        "optimal_multipliers": _numbers(data.optimal_multipliers.values[:, 0]),
        "description": json.loads(data.attrs["descriptions"])[str(instance)],
        "lines": lines,
    }


def _growth(group: list[Table]) -> Iterator[dict[str, Any]]:
    results = [table.result for table in group]
    first = results[0].data
    for metric in ("strong_regret", "strong_violation"):
        fit = results[0].growth_exponent(*results[1:], metric=metric)
        for instance in first.instance.values[:MOST_INSTANCES]:
            lines = []
            for learner in first.learner.values:
                for setting in first.setting.values:
                    of = {"learner": learner, "instance": instance, "setting": setting}
                    ends = [one.metric(metric).sel(of).isel(episode=-1).dropna("seed").values for one in results]
                    if not all(len(end) for end in ends):
                        continue
                    intervals = [bootstrap_mean(end) for end in ends]
                    slope = {f"exponent{k}": _number(fit[v].sel(of)) for k, v in
                             (("", "exponent"), ("_low", "low"), ("_high", "high"))}  # fmt: skip
                    lines.append(
                        {
                            "learner": str(learner),
                            "setting": str(setting),
                            "mean": _numbers([end.mean() for end in ends]),
                            "low": _numbers([low for low, _ in intervals]),
                            "high": _numbers([high for _, high in intervals]),
                            **slope,
                        }
                    )
            times = [table.episodes for table in group]
            at = {"environment": group[0].environment, "instance": int(instance)}
            yield {**at, "metric": metric, "T": times, "lines": lines}


def _run(store: Store) -> dict[str, str]:
    manifest, _ = store.manifest, store.config  # both are verified
    done, blocks = sum(map(store.is_done, store.blocks)), len(store.blocks)
    versions = ", ".join(f"{name} {value}" for name, value in manifest["versions"].items())
    kinds = store.kinds_of_machine
    mixed = f"; blocks of {kinds} kinds of machine, which may round otherwise" if kinds > 1 else ""
    revision = f", git {manifest['git_revision'][:12]}" if manifest["git_revision"] else ""
    return {
        "directory": str(store.path),
        "about": f"{done} of {blocks} blocks; {versions}{revision}; {', '.join(manifest['devices'])}{mixed}",
        "config": (store.path / "config.toml").read_text(),
        "manifest": json.dumps(manifest, indent=1),
        "commands": f"cpdpo run {store.path}/config.toml --out NEW_DIRECTORY\ncpdpo report NEW_DIRECTORY",
    }


def _how(stores: list[Store]) -> str:
    where = ", ".join(repr(str(store.path)) for store in stores)
    return (
        "import cpdpo_jax as cp\nfrom cpdpo_jax.results import figures\n\n"
        f"for table in cp.load_run({where}):   # one per environment and T\n"
        "    figures.curves(table.result.data, title=table.environment).savefig('curves.pdf')\n"
        "    figures.details(table.result.data, title=table.environment).savefig('details.pdf')\n"
        "    table.result.data                # xarray: every seed at every checkpoint\n"
    )


def _number(value: Any) -> float | None:
    """Five digits; JSON has no NaN."""
    value = float(value)
    return float(f"{value:.5g}") if np.isfinite(value) else None


def _numbers(values: Any) -> list[float | None]:
    return [_number(value) for value in np.asarray(values, float)]
