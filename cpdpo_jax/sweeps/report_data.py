"""The data of `report.html` as JSON values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from cpdpo_jax.common import palette
from cpdpo_jax.common.text import counted
from cpdpo_jax.results import units
from cpdpo_jax.results.result import METRICS, Result
from cpdpo_jax.results.statistics import bootstrap_mean, t_interval
from cpdpo_jax.results.tables import common_hparams
from cpdpo_jax.sweeps.load import Table
from cpdpo_jax.sweeps.store import Store

MAX_INSTANCES = 8  # instances per environment with figures; tables and pooled curves contain all
MAX_POINTS = 64  # checkpoints per curve on the page
POOLED = None  # stands for the instance of curves that average all instances


def payload(tables: list[Table], all_rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The curves and table rows; lines have the positions of their `learner` and `hparams` in the lists of names."""
    extra = {row["learner"]: row["extra_knowledge"] for row in all_rows}
    names = {
        "learner": list(extra),
        "hparams": list(dict.fromkeys(str(name) for table in tables for name in table.result.data.hparams.values)),
    }
    return {
        "learners": [{"name": n, "extra": extra[n], **palette.learner_style(n)._asdict()} for n in extra],
        "hparams": common_hparams(names["hparams"])[1],
        "rows": [_row(row, names) for row in all_rows],
        "views": [view for table in tables for view in _views(table, names)],
        "growth": [view for group in growth_groups(tables) for view in _growth(group, names)],
    }


def about(stores: list[Store], all_rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The description of the runs."""
    return {
        "subtitle": _subtitle(all_rows),
        "runs": [_run(store) for store in stores],
        "figures": _figure_code(stores),
    }


def _subtitle(all_rows: list[dict[str, Any]]) -> str:
    def count(noun: str, *names: str) -> str:
        n = len({tuple(row[name] for name in names) for row in all_rows})
        return counted(n, noun)

    seeds, times = (sorted({row[name] for row in all_rows}) for name in ("seeds", "episodes"))
    parts = [count("environment", "environment")]
    if len({row["instance"] for row in all_rows}) > 1:
        parts.append(count("instance", "environment", "instance") + " in all")
    parts.append("T = " + ", ".join(f"{t:,}" for t in times))
    parts.append(f"{seeds[0]:,} to {seeds[-1]:,} seeds each" if len(seeds) > 1 else f"{counted(seeds[0], 'seed')} each")
    shared, _ = common_hparams(list(dict.fromkeys(row["hparams"] for row in all_rows)))
    parts += [f"hparams {shared}"] if shared else []
    return f"{count('learner', 'learner')} on {', '.join(parts)}"


def _row(row: dict[str, Any], names: dict[str, list[str]]) -> dict[str, Any]:
    """The row of one learner, instance and hparams at T; metrics as [mean, low, high]."""
    return {
        **{key: row[key] for key in ("environment", "instance", "seeds")},
        "T": row["episodes"],
        **{key: names[key].index(row[key]) for key in names},
        "metrics": [[_number(row[name][key]) for key in ("mean", "low", "high")] for name in METRICS],
    }


def panels(tables: list[Table]) -> Iterator[tuple[Table, Result, int]]:
    """Each table and instance that has figures."""
    for table in tables:
        for i, instance in enumerate(table.result.data.instance.values[:MAX_INSTANCES]):
            yield table, Result(table.result.data.isel(instance=[i])), int(instance)


def growth_groups(tables: list[Table]) -> list[list[Table]]:
    """Groups of tables of one environment that differ only in T."""
    groups: dict[str, list[Table]] = {}
    for table in tables:
        groups.setdefault(table.environment, []).append(table)

    def lines(table: Table) -> tuple:
        return tuple(tuple(table.result.data[dim].values.tolist()) for dim in ("learner", "instance", "hparams"))

    return [group for group in groups.values() if len(group) > 1 and len({lines(table) for table in group}) == 1]


def _views(table: Table, names: dict[str, list[str]]) -> Iterator[dict[str, Any]]:
    """The curves of each instance, and the pooled curves of several instances."""
    data, order = table.result.data, ("learner", "hparams", "instance")
    kept = np.unique(np.linspace(0, data.sizes["episode"] - 1, MAX_POINTS).round().astype(int))
    chosen = table.result.data.isel(episode=kept)
    metrics = [Result(chosen).metric(name).transpose(*order, "episode", "seed").values for name in METRICS]
    traces = [
        chosen[name].transpose(*order, "constraint", "episode", "seed").values
        for name in ("multiplier_mean", "strong_violation")
    ]
    instances = [int(instance) for instance in data.instance.values]
    lines: dict[int | None, list[dict[str, Any]]] = {instance: [] for instance in instances[:MAX_INSTANCES]}
    lines |= {POOLED: []} if len(instances) > 1 else {}
    for l, s in np.ndindex(data.sizes["learner"], data.sizes["hparams"]):  # noqa: E741
        line = {
            "learner": names["learner"].index(str(data.learner.values[l])),
            "hparams": names["hparams"].index(str(data.hparams.values[s])),
        }
        samples, means = [], []
        for i, instance in enumerate(instances):
            ran = np.isfinite(metrics[0][l, s, i]).any(axis=0)
            if not ran.any():
                continue
            values = np.stack([curve[l, s, i][:, ran] for curve in metrics])  # [metric, episode, seed]
            means.append([trace[l, s, i][..., ran].mean(axis=-1) for trace in traces])
            samples.append(values)
            if instance in lines:
                lines[instance].append(line | _curves(values, bootstrap_mean(values)) | _traces(*means[-1]))
        if POOLED in lines and samples:
            interval = t_interval(np.stack([sample.mean(axis=-1) for sample in samples], axis=-1))
            mean = np.mean([sample.mean(axis=-1) for sample in samples], axis=0)
            pooled = _curves(np.concatenate(samples, axis=-1), interval, mean)
            pooled |= _traces(*(np.mean(trace, axis=0) for trace in zip(*means, strict=True)))
            lines[POOLED].append(line | pooled)
    described = json.loads(data.attrs["descriptions"])
    optimal = data.optimal_multipliers.transpose("instance", "constraint").values
    for instance, drawn in lines.items():
        text = f"Mean of {len(instances)} instances." if instance is None else described[str(instance)]
        multipliers = optimal.mean(axis=0) if instance is None else optimal[instances.index(instance)]
        yield {
            "environment": table.environment, "instance": instance, "several": len(instances) > 1,
            "T": table.episodes, "x": chosen.episode.values.tolist(), "units": units.remark(data),
            "reward_unit": units.reward_unit(data), "description": text, "lines": drawn,
            "cost_units": [units.cost_unit(data), *(units.cost_unit(data, i) for i in range(data.sizes["constraint"]))],
            "optimal": _numbers(multipliers),
        }  # fmt: skip


def _curves(values: np.ndarray, interval: tuple[np.ndarray, ...], mean: np.ndarray | None = None) -> dict[str, Any]:
    """Means [metric][episode] with their 95 % intervals and the 10 and 90 % quantiles, both relative to the mean.

    values [metric, episode, seed]; interval (low, high), each [metric, episode].
    """
    mean = values.mean(axis=-1) if mean is None else mean
    quantiles = np.quantile(values, [0.1, 0.9], axis=-1)

    def relative(ends: Any) -> list[Any]:
        return [_numbers(end - mean, 3) for end in ends]

    return {"mean": _numbers(mean), "interval": relative(interval), "quantiles": relative(quantiles)}


def _traces(multipliers: np.ndarray, violations: np.ndarray) -> dict[str, Any]:
    """Means over seeds, [constraint][episode]."""
    return {"multipliers": _numbers(multipliers, 4), "violations": _numbers(violations, 4)}


def _growth(group: list[Table], names: dict[str, list[str]]) -> Iterator[dict[str, Any]]:
    """Metrics at T against T with growth exponents, for each instance and pooled; lines [T]."""
    results = [table.result for table in group]
    first, order = results[0].data, ("learner", "hparams", "instance")
    instances = [int(instance) for instance in first.instance.values]
    for metric in ("strong_regret", "strong_violation"):
        fit = results[0].growth_exponent(*results[1:], metric=metric)
        slopes = [fit[name].transpose(*order).values for name in ("exponent", "low", "high")]
        ends = [result.metric(metric).isel(episode=-1).transpose(*order, "seed").values for result in results]
        lines: dict[int | None, list[dict[str, Any]]] = {instance: [] for instance in instances[:MAX_INSTANCES]}
        lines |= {POOLED: []} if len(instances) > 1 else {}
        for l, s in np.ndindex(first.sizes["learner"], first.sizes["hparams"]):  # noqa: E741
            line = {
                "learner": names["learner"].index(str(first.learner.values[l])),
                "hparams": names["hparams"].index(str(first.hparams.values[s])),
            }
            means = []
            for i, instance in enumerate(instances):
                samples = [end[l, s, i][np.isfinite(end[l, s, i])] for end in ends]
                if not all(map(len, samples)):
                    continue
                means.append([sample.mean() for sample in samples])
                if instance in lines:
                    low, high = zip(*map(bootstrap_mean, samples), strict=True)
                    exponent = _numbers([slope[l, s, i] for slope in slopes])
                    lines[instance].append(line | _points(means[-1], low, high) | {"exponent": exponent})
            if POOLED in lines and means:
                exponents = slopes[0][l, s][np.isfinite(slopes[0][l, s])]
                exponent = [exponents.mean(), *t_interval(exponents)] if len(exponents) else [np.nan] * 3
                points = _points(np.mean(means, axis=0), *t_interval(np.transpose(means)))
                lines[POOLED].append(line | points | {"exponent": _numbers(exponent)})
        for instance, drawn in lines.items():
            view = {"environment": group[0].environment, "instance": instance, "metric": metric}
            regret = metric.endswith("regret")
            view["unit"] = (units.reward_unit if regret else units.cost_unit)(group[0].result.data)
            yield view | {"x": [table.episodes for table in group], "lines": drawn}


def _points(mean: Any, low: Any, high: Any) -> dict[str, Any]:
    return {"mean": _numbers(mean), "low": _numbers(low), "high": _numbers(high)}


def _run(store: Store) -> dict[str, str]:
    manifest, _ = store.manifest, store.config  # reading verifies both
    done, blocks = sum(map(store.is_done, store.blocks)), len(store.blocks)
    versions = ", ".join(f"{name} {value}" for name, value in manifest["versions"].items())
    kinds = store.machine_kind_count
    mixed = f"; blocks of {kinds} kinds of machine, which may round differently" if kinds > 1 else ""
    revision = f", git {manifest['git_revision'][:12]}" if manifest["git_revision"] else ""
    return {
        "directory": str(store.path),
        "about": f"{done} of {counted(blocks, 'block')}; {versions}{revision}; {', '.join(manifest['devices'])}{mixed}",
        "config": (store.path / "config.toml").read_text(),
        "manifest": json.dumps(manifest, indent=1),
        "commands": f"cpdpo run {store.path}/config.toml --out NEW_DIRECTORY\ncpdpo report NEW_DIRECTORY",
    }


def _figure_code(stores: list[Store]) -> str:
    """Python code that draws the figures of the page."""
    paths = ", ".join(repr(str(store.path)) for store in stores)
    return (
        "import cpdpo_jax as cp\nfrom cpdpo_jax.results import figures\n\n"
        f"for table in cp.load_run({paths}):   # one per environment and T\n"
        "    figures.curves(table.result.data, title=table.environment).savefig('curves.pdf')\n"
        "    figures.details(table.result.data, title=table.environment).savefig('details.pdf')\n"
        "    table.result.data                # xarray: every seed at every checkpoint\n"
    )


def _number(value: float | None, digits: int = 5) -> float | None:
    """The number rounded to that many digits; None for NaN, which JSON lacks."""
    return float(f"{value:.{digits}g}") if value is not None and np.isfinite(value) else None


def _numbers(values: Any, digits: int = 5) -> list[Any]:
    """`_number` of an array of any shape, as nested lists."""
    values = np.asarray(values, float)
    convert = _numbers if values.ndim > 1 else _number
    return [convert(entry, digits) for entry in values]
