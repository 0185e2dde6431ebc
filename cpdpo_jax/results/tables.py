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
    rows = [["instance", "setting", "event", "seeds with a failure", "failing episodes", "least slack"]]
    last = data.isel(episode=-1)
    for at, label in _rows(data):
        for event in data.event.values:
            failures = last.failures.sel(at | {"event": event}).values
            slack = float(last.slack.sel(at | {"event": event}).min())
            seen = f"{int((failures > 0).sum())} of {failures.size} ({(failures > 0).mean():.3g})"
            rows.append([*label[1:], str(event), seen, f"{failures.mean():.4g} per seed", f"{slack:.3g}"])
    lines = [format_table(rows), ""]
    for i in range(data.sizes["instance"]):
        for kind in ("reward", "cost"):
            worst = float(last.width_sum.sel(kind=kind).isel(instance=i).max())
            bound = float(last.width_bound.sel(kind=kind).isel(instance=i))
            lines.append(
                f"instance {i}: sum of V({kind} width) at most {worst:.4g} over seeds, the lemma allows {bound:.4g}"
            )
        regret, violation = (
            float(metric(data, x).isel(instance=i, episode=-1).max()) for x in ("strong_regret", "strong_violation")
        )
        lines.append(
            f"instance {i}: strong regret at most {regret:.4g} over seeds; Theorem 1's order term (constant 1, "
            f"logarithms dropped) is {float(data.regret_order_term[i]):.4g}; strong violation at most {violation:.4g}, "
            f"Theorem 2's order term is {float(data.violation_order_term[i]):.4g}"
        )
    return "\n".join(lines)


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
