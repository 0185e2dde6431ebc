"""Tables of a result for people: a summary, paired comparisons, what the monitor saw."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from cpdpo_jax.results.statistics import METRICS, bootstrap_mean, metric

if TYPE_CHECKING:
    import xarray as xr


def summary_table(data: xr.Dataset) -> str:
    """One row per learner, instance and setting; see `Result.summary`."""
    episodes = int(data.episode[-1])
    rows = [["learner", "instance", "setting", "metric", "mean", "95 % interval", "median", "per episode"]]
    for at, label in _rows(data):
        for name in METRICS:
            values = metric(data, name).sel(at).isel(episode=-1).values
            values = values[np.isfinite(values)]
            if not len(values):
                rows.append([*label, name, "not reached", "", "", ""])
                continue
            low, high = bootstrap_mean(values)
            mean = values.mean()
            rows.append(
                [*label, name, f"{mean:.4g}", f"[{low:.4g}, {high:.4g}]", f"{np.median(values):.4g}",
                 f"{mean / episodes:.3g}"]
            )  # fmt: skip
    ended = " (interrupted)" if data.attrs["interrupted"] else ""
    head = f"{episodes:,} episodes, {data.sizes['seed']} seeds{ended}"
    return head + "\n" + format_table(rows)


def comparison_table(data: xr.Dataset, a: str, b: str) -> str:
    """See `Result.compare`."""
    known = [str(name) for name in data.learner.values]
    for name in (a, b):
        if name not in known:
            raise ValueError(f"there is no learner {name!r} in this result; it has {', '.join(known)}.")
    rows = [["instance", "setting", "metric", f"{a} - {b}", "95 % interval"]]
    for at, label in _rows(data.sel(learner=[a])):
        for name in METRICS:
            ends = metric(data, name).isel(episode=-1)
            paired = (ends.sel(at) - ends.sel(at | {"learner": b})).values
            low, high = bootstrap_mean(paired)
            rows.append([*label[1:], name, f"{paired.mean():.4g}", f"[{low:.4g}, {high:.4g}]"])
    return format_table(rows)


def monitor_table(data: xr.Dataset) -> str:
    """See `Result.monitor_table`."""
    if "failures" not in data:
        raise ValueError("this run was not watched; simulate with monitor=True.")
    rows = [["learner", "instance", "setting", "event", "seeds with a failure", "failing episodes", "least slack"]]
    last, lines = data.isel(episode=-1), []
    for at, label in _rows(data):
        for event in data.event.values:
            failures = last.failures.sel(at | {"event": event}).values
            failures = failures[np.isfinite(failures)]
            if not failures.size:  # an event of another learner's analysis
                continue
            slack = float(last.slack.sel(at | {"event": event}).min())
            seen = f"{int((failures > 0).sum())} of {failures.size} ({(failures > 0).mean():.3g})"
            rows.append([*label, str(event), seen, f"{failures.mean():.4g} per seed", f"{slack:.3g}"])
        lines += _sums_of(data, at, ", ".join(label))
    return "\n".join([format_table(rows), "", *lines])


def _sums_of(data: xr.Dataset, at: dict, label: str) -> list[str]:
    """What the analysis adds up, beside what the theory allows, of one learner, instance and setting."""
    last, lines = data.isel(episode=-1).sel(at), []
    for quantity in data.quantity.values:
        values, bound = last.watched_sum.sel(quantity=quantity).values, float(last.watched_bound.sel(quantity=quantity))
        if np.isfinite(values).any():
            allowed = f", the theory allows {bound:.4g}" if np.isfinite(bound) else ""
            lines.append(f"{label}: sum of {quantity} at most {np.nanmax(values):.4g} over seeds{allowed}")
    for name in ("regret", "violation"):
        worst, order = float(metric(data, f"strong_{name}").sel(at).isel(episode=-1).max()), last[f"{name}_order_term"]
        lines.append(
            f"{label}: strong {name} at most {worst:.4g} over seeds; the theorem's order term (constant 1, logarithms "
            f"dropped) is {float(order):.4g}"
        )
    return lines


def _rows(data: xr.Dataset) -> Iterator[tuple[dict, list[str]]]:
    """Every (learner, instance, setting) of a result that was run: a selection and its labels."""
    for learner in data.learner.values:
        for i, instance in enumerate(data.instance.values):
            for setting in data.setting.values:
                at = {"learner": learner, "instance": instance, "setting": setting}
                if np.isfinite(data.strong_regret.sel(at).values).any():
                    yield at, [str(learner), f"{data.instance_name.values[i]} ({instance})", str(setting)]


def format_table(rows: list[list[str]]) -> str:
    """Columns of one width, the first row underlined."""
    widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])
