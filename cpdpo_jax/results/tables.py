"""Text tables, the labels of the runs of a data set, and the table of the monitor."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cpdpo_jax.results.statistics import metric

if TYPE_CHECKING:
    import xarray as xr


class TextTable(str):
    """A table as text, which a notebook renders as an HTML table."""

    __slots__ = ("head", "notes", "rows")
    head: str
    rows: list[list[str]]
    notes: list[str]

    def __new__(cls, rows: list[list[str]], head: str = "", notes: Sequence[str] = ()) -> TextTable:
        """Make a table of rows, the first with the names of columns; `head` is a line above it, `notes` lines below."""
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


def monitor_table(data: xr.Dataset) -> str:
    """See `Result.monitor_table`."""
    if "failures" not in data:
        raise ValueError(
            "this run has no monitor; simulate a learner that has an analysis, such as cpdpo, with monitor=True."
        )
    rows = [["learner", "instance", "hparams", "event", "seeds with a failure", "failing episodes", "least slack"]]
    last, lines = data.isel(episode=-1), []
    for at, label in labelled_runs(data):
        if last.failures.sel(at).isnull().all():  # a learner without an analysis
            continue
        for event in data.event.values:
            failures = last.failures.sel(at | {"event": event}).values
            failures = failures[np.isfinite(failures)]
            if not failures.size:  # an event of another learner's analysis
                continue
            slack = float(last.slack.sel(at | {"event": event}).min())
            seeds = f"{int((failures > 0).sum())} of {failures.size} ({(failures > 0).mean():.3g})"
            rows.append([*label, str(event), seeds, f"{failures.mean():.4g} per seed", f"{slack:.3g}"])
        lines += _monitored_sums(data, at, ", ".join(label))
    return "\n".join([format_table(rows), "", *lines])


def _monitored_sums(data: xr.Dataset, at: dict, label: str) -> list[str]:
    """The sums of the analysis and their theoretical bounds, for one learner, instance and hparams."""
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


def labelled_runs(data: xr.Dataset) -> Iterator[tuple[dict, list[str]]]:
    """The selection and the labels of every (learner, instance, hparams) that was run."""
    for learner in data.learner.values:
        for i, instance in enumerate(data.instance.values):
            for hparams in data.hparams.values:
                at = {"learner": learner, "instance": instance, "hparams": hparams}
                if np.isfinite(data.strong_regret.sel(at).values).any():
                    shown = f"{learner}*" if extra_knowledge(data, learner) else str(learner)
                    yield at, [shown, f"{data.instance_name.values[i]} ({instance})", str(hparams)]


def common_hparams(labels: Sequence[str]) -> tuple[str, list[str]]:
    """The leading part that all labels of hparams share, such as "tuned", and the labels without it."""
    parts = [label.split(", ") for label in labels]
    n = 0
    while len(labels) > 1 and all(len(part) > n + 1 and part[n] == parts[0][n] for part in parts):
        n += 1
    return ", ".join(parts[0][:n]) if parts else "", [", ".join(part[n:]) for part in parts]


def extra_knowledge(data: xr.Dataset, learner: str) -> str:
    """The knowledge of a learner that the others do not have; "" for none."""
    return str(data.extra_knowledge.sel(learner=learner).item()) if "extra_knowledge" in data.coords else ""


def footnotes(kinds: Iterable[str]) -> list[str]:
    """The meaning of the stars at learners, one line per kind of extra knowledge."""
    return [f"* extra knowledge, which the others do not have: {kind}" for kind in dict.fromkeys(kinds) if kind]


def format_table(rows: list[list[str]]) -> str:
    """The rows as aligned columns, with a line below the first row."""
    widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])
