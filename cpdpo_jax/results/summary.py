"""Summaries of a result at T: a data frame, and a text table with one number format per column."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from cpdpo_jax.common.axes import AXES
from cpdpo_jax.common.text import column_format, counted
from cpdpo_jax.results import units
from cpdpo_jax.results.copies import option_values
from cpdpo_jax.results.statistics import METRICS, at_end, bootstrap_mean
from cpdpo_jax.results.tables import TextTable, extra_knowledge, footnotes, labelled_runs

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

FIELDS = (
    "learner", "instance", "instance_name", "hparams", *AXES, "episodes", "metric", "unit", "seeds", "mean", "low",
    "high", "median", "per_episode", "worst_constraint", "worst_share", "extra_knowledge",
)  # fmt: skip
NUMBERS = ("mean", "low", "high", "median", "per_episode")  # numeric columns of the frame


def summary_frame(data: xr.Dataset) -> pd.DataFrame:
    """One row per learner, instance, hparams and metric; see `Result.summary_frame`."""
    import pandas as pd

    return pd.DataFrame(list(_records(data)), columns=list(FIELDS)).astype({"worst_constraint": "Int64"})


def _records(data: xr.Dataset) -> Iterator[dict[str, Any]]:
    ends = {name: at_end(data, name) for name in METRICS}
    for at, _ in labelled_runs(data):
        episodes = int(data["T"].sel(hparams=at["hparams"]) if "T" in data.coords else data.episode[-1])
        for name in METRICS:
            values = ends[name].sel(at).values
            values = values[np.isfinite(values)]
            low, high = bootstrap_mean(values) if len(values) else (np.nan, np.nan)
            mean, median = (values.mean(), np.median(values)) if len(values) else (np.nan, np.nan)
            worst, share = worst_constraint(data, at, name)
            yield {
                "learner": str(at["learner"]), "instance": int(at["instance"]),
                "instance_name": str(data.instance_name.sel(instance=at["instance"]).item()),
                "hparams": str(at["hparams"]), **option_values(data, at["hparams"]), "episodes": episodes,
                "metric": name, "unit": _unit(data, name, worst),
                "seeds": len(values), "mean": mean, "low": low, "high": high, "median": median,
                "per_episode": mean / episodes, "worst_constraint": worst, "worst_share": share,
                "extra_knowledge": extra_knowledge(data, at["learner"]),
            }  # fmt: skip


def worst_constraint(data: xr.Dataset, at: dict, name: str) -> tuple[int | None, float]:
    """The constraint that is the worst in most seeds, and the share of these seeds; (None, nan) for regret."""
    if not name.endswith("violation"):
        return None, np.nan
    each = at_end(data, name, worst=False).sel(at)
    if "constraint" not in each.dims:
        return None, np.nan
    values = each.transpose("constraint", "seed").values
    values = values[:, np.isfinite(values).all(axis=0)]
    if not values.size:
        return None, np.nan
    counts = np.bincount(values.argmax(axis=0), minlength=len(values))
    return int(counts.argmax()), float(counts.max() / counts.sum())


def _unit(data: xr.Dataset, name: str, worst: int | None) -> str:
    return units.reward_unit(data) if name.endswith("regret") else units.cost_unit(data, worst)


def summary_table(data: xr.Dataset) -> TextTable:
    """The frame as text; see `Result.summary`."""
    frame = summary_frame(data)
    shown = dict.fromkeys(NUMBERS, column_format(frame[["mean", "low", "high", "median"]].to_numpy(float).ravel()))
    shown["per_episode"] = column_format(frame["per_episode"], 3)
    several = data.sizes["constraint"] > 1 if "constraint" in data.sizes else False
    table = [["learner", "instance", "hparams", "metric", "mean", "95 % interval", "median", "per episode"]]
    table[0] += ["worst constraint"] * several
    for row in frame.to_dict("records"):
        label = [row["learner"] + "*" * bool(row["extra_knowledge"]), f"{row['instance_name']} ({row['instance']})"]
        label += [row["hparams"], row["metric"]]
        if not row["seeds"]:
            table.append([*label, "not reached", "", "", ""] + [""] * several)
            continue
        mean, low, high, median, per_episode = (shown[name](row[name]) for name in NUMBERS)
        worst = [format_worst(row["worst_constraint"], row["worst_share"], units.cost_units(data))] * several
        table.append([*label, mean, f"[{low}, {high}]", median, per_episode, *worst])
    return TextTable(table, _head(data), footnotes(frame["extra_knowledge"]))


def format_worst(constraint: Any, share: float, names: list[str]) -> str:
    """The worst constraint as text, such as '1', '1 (visitors)' or '1 in 75% of seeds'; "" for regret."""
    if not share > 0:
        return ""
    unit = f" ({names[int(constraint)]})" if len(set(names)) > 1 else ""
    return f"{int(constraint)}{unit}" + (f" in {share:.0%} of seeds" if share < 1 else "")


def _head(data: xr.Dataset) -> str:
    """The line above the table: episodes, seeds, whether the run was interrupted, and units."""
    times = sorted({int(t) for t in data["T"].values}) if "T" in data.coords else [int(data.episode[-1])]
    interrupted = " (interrupted)" if data.attrs["interrupted"] else ""
    episodes = f"{' and '.join(f'{t:,}' for t in times)} episodes, {counted(data.sizes['seed'], 'seed')}{interrupted}"
    return ", ".join(filter(None, [episodes, units.remark(data)]))
