"""Tables of a result for people: a summary, paired comparisons, what the monitor saw."""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cpdpo_jax.common.words import number
from cpdpo_jax.results import units
from cpdpo_jax.results.statistics import METRICS, bootstrap_mean, metric

if TYPE_CHECKING:
    import xarray as xr


class TextTable(str):
    """A table as text, which a notebook shows as a table: `print` and all that takes a str see the text."""

    __slots__ = ("head", "notes", "rows")
    head: str
    rows: list[list[str]]
    notes: list[str]

    def __new__(cls, rows: list[list[str]], head: str = "", notes: Sequence[str] = ()) -> TextTable:
        """Rows of cells, the first of which are the columns' names; a line above them, and lines below."""
        table = super().__new__(cls, "\n".join(filter(None, [head, format_table(rows), *notes])))
        table.head, table.rows, table.notes = head, rows, list(notes)
        return table

    def _repr_html_(self) -> str:
        """For notebooks."""
        first, *rest = self.rows
        names = "".join(f"<th>{html.escape(cell)}</th>" for cell in first)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rest)
        head = f"<p>{html.escape(self.head)}</p>" if self.head else ""
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return f"{head}<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>{notes}"


def summary_table(data: xr.Dataset) -> TextTable:
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
                [*label, name, number(mean), f"[{number(low)}, {number(high)}]", number(np.median(values)),
                 number(mean / episodes, 3)]
            )  # fmt: skip
    ended = " (interrupted)" if data.attrs["interrupted"] else ""
    head = [f"{episodes:,} episodes, {data.sizes['seed']} seeds{ended}", units.remark(data)]
    notes = footnotes(extra_knowledge(data, learner) for learner in data.learner.values)
    return TextTable(rows, ", ".join(filter(None, head)), notes)


def comparison_table(data: xr.Dataset, a: str, b: str) -> TextTable:
    """See `Result.compare`."""
    known = [str(name) for name in data.learner.values]
    for name in (a, b):
        if name not in known:
            raise ValueError(f"there is no learner {name!r} in this result; it has {', '.join(known)}.")
    rows = [
        ["instance", f"setting of {a}", f"setting of {b}", "metric", f"{a} - {b}", "95 % interval", "seeds", "at T"]
    ]
    for i, instance in enumerate(data.instance.values):
        for one, other in _setting_pairs(data, instance, a, b):
            label = [f"{data.instance_name.values[i]} ({instance})", one, other]
            first, second = ({"learner": a, "instance": instance, "setting": one},
                             {"learner": b, "instance": instance, "setting": other})  # fmt: skip
            for name in METRICS:
                rows.append([*label, name, *_difference(metric(data, name), first, second)])
    if len(rows) == 1:
        raise ValueError(f"there is nothing to compare: {a!r} and {b!r} were not run on one instance.")
    kept = [c for c in range(len(rows[0])) if c != 2 or any(row[1] != row[2] for row in rows[1:])]
    if 2 not in kept:
        rows[0][1] = "setting"
    return TextTable([[row[c] for c in kept] for row in rows], units.remark(data))


def _setting_pairs(data: xr.Dataset, instance: int, a: str, b: str) -> list[tuple[str, str]]:
    """Which settings are held against each other: those of one name where both have the same names, else all pairs."""
    ours, theirs = (
        [str(s) for s in data.setting.values if np.isfinite(data.strong_regret.sel(
            learner=name, instance=instance, setting=s).values).any()] for name in (a, b)
    )  # fmt: skip
    if a == b:
        return list(itertools.combinations(ours, 2))
    if set(ours) == set(theirs):
        return [(name, name) for name in ours]
    return list(itertools.product(ours, theirs))


def _difference(curves: xr.DataArray, first: dict, second: dict) -> list[str]:
    """Mean, interval, seeds and episode of the difference at the last checkpoint that all seeds reached."""
    paired = (curves.sel(first) - curves.sel(second)).transpose("episode", "seed").values
    paired = paired[:, np.isfinite(paired).any(axis=0)]  # seeds that both began
    reached = np.flatnonzero(np.isfinite(paired).all(axis=1)) if paired.size else []
    if not len(reached):
        return ["no checkpoint that both reached", "", "0", ""]
    values = paired[reached[-1]]
    low, high = bootstrap_mean(values)
    at = f"{int(curves.episode.values[reached[-1]]):,}"
    return [number(values.mean()), f"[{number(low)}, {number(high)}]", str(len(values)), at]


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
                    shown = f"{learner}*" if extra_knowledge(data, learner) else str(learner)
                    yield at, [shown, f"{data.instance_name.values[i]} ({instance})", str(setting)]


def extra_knowledge(data: xr.Dataset, learner: str) -> str:
    """What a learner was handed beyond what the others know; "" for nothing."""
    return str(data.extra_knowledge.sel(learner=learner).item()) if "extra_knowledge" in data.coords else ""


def footnotes(kinds: Iterable[str]) -> list[str]:
    """What the stars beside learners mean, one line for each kind of extra knowledge."""
    return [f"* extra knowledge, which the others do not have: {kind}" for kind in dict.fromkeys(kinds) if kind]


def format_table(rows: list[list[str]]) -> str:
    """Columns of one width, the first row underlined."""
    widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def format_interval(value: float, low: float = np.nan, high: float = np.nan, digits: int = 3) -> str:
    """'1.23 [1.2, 1.3]'; a dash for what is not a number."""
    if not np.isfinite(value):
        return "-"
    span = f" [{low:.{digits}g}, {high:.{digits}g}]" if np.isfinite([low, high]).all() else ""
    return f"{value:.{digits}g}{span}"


def format_mean(values: np.ndarray, digits: int = 3) -> str:
    """The mean of all values with its 95 % interval; values of several instances are averaged seed by seed."""
    by_seed = values.mean(axis=0) if values.ndim > 1 else values
    low, high = bootstrap_mean(by_seed)
    return format_interval(float(by_seed.mean()), float(low), float(high), digits)
