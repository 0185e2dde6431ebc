"""LaTeX tables with booktabs that fit a page of `article`, with one number format per column."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cpdpo_jax.common.text import column_format, counted
from cpdpo_jax.results.figures import TITLES, check_metrics
from cpdpo_jax.results.statistics import STRONG
from cpdpo_jax.results.summary import summary_frame
from cpdpo_jax.results.tables import common_hparams

if TYPE_CHECKING:
    import xarray as xr

REFERENCES = ("lp_optimal", "unconstrained_optimal")  # they know the solution, so their metrics are never bold
TEXT_WIDTH = 345.0  # points, of `article` at 10 points
GAP = 3.0  # points on each side of a column
MAX_LINES = 48  # of a table in footnote size on a page of `article`
SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def escaped(text: str) -> str:
    """The text with LaTeX's special characters escaped."""
    return re.sub(r"[\\~^]|[&%$#_{}]", lambda match: SPECIAL.get(match[0], "\\" + match[0]), text)


def latex_table(
    runs: Sequence[tuple[str, xr.Dataset]],
    *,
    metrics: Sequence[str] = STRONG,
    caption: str = "",
    label: str = "",
) -> str:
    """The `tabular` of runs with their headings, inside a `table` if there is a caption or a label.

    It has a row per learner and hparams, and a column per metric with its mean and 95 % interval. In each group of rows
    (one per run and instance) the lowest mean of a strong metric among learners without extra knowledge is bold. Each
    heading has tables of its own, of at most `MAX_LINES` lines. All fit into the text width of `article`: intervals
    that are too wide are below their means, and a table that is still too wide is scaled.
    """
    import pandas as pd

    check_metrics(metrics)
    sections: dict[str, list[pd.DataFrame]] = {}
    for heading, data in runs:
        sections.setdefault(heading, []).append(summary_frame(data))
    frames = {heading: pd.concat(parts, ignore_index=True) for heading, parts in sections.items()}
    everything = pd.concat(frames.values())
    tables = [table for heading, frame in frames.items() for table in _tables(heading, frame, metrics)]
    kinds = dict.fromkeys(kind for kind in everything.extra_knowledge if kind)
    notes = [rf"\par\smallskip{{\footnotesize $^{{*}}$ has extra knowledge: {escaped(kind)}\par}}" for kind in kinds]
    tables = ["\n".join([table, *notes]) for table in tables]
    if caption or label:
        tables = [_float(table, caption, label, i) for i, table in enumerate(tables)]
    packages = "booktabs, graphicx" if any("resizebox" in table for table in tables) else "booktabs"
    about = [
        f"% needs \\usepackage{{{packages}}}; mean [95 % bootstrap interval over seeds]; bold: the lowest strong metric"
    ]
    about += [f"% {counted(n, 'seed')}" for n in sorted(set(everything.seeds))]
    shared, _ = common_hparams(list(dict.fromkeys(everything.hparams)))
    about += [f"% hparams of all rows: {shared}"] if shared else []
    return "\n".join(about) + "\n" + "\n\n\\bigskip\n".join(tables) + "\n"


def _float(table: str, caption: str, label: str, i: int) -> str:
    """The i-th table as a `table`; only the first has the label."""
    lines = [rf"\caption{{{caption}{' (continued)' if i else ''}}}"] if caption else []
    lines += [rf"\label{{{label}}}"] if label and not i else []
    return "\n".join([r"\begin{table}", r"\centering", *lines, table, r"\end{table}"])


def _tables(heading: str, frame: Any, metrics: Sequence[str]) -> Iterator[str]:
    """The tables of one heading, in footnote size."""
    several = frame.episodes.nunique() > 1
    if heading and not several:
        heading += f", T = {frame.episodes.iloc[0]:,}"
    formats = {name: _format(frame[frame.metric == name]) for name in metrics}
    labels = list(dict.fromkeys(frame.hparams))
    short = dict(zip(labels, common_hparams(labels)[1], strict=True))
    first = ["Learner", *(["Hparams"] if len(labels) > 1 else [])]
    heads = [
        [*first, *(TITLES[name].capitalize() for name in metrics)],
        [""] * len(first) + [_unit(frame, name) for name in metrics],
    ]
    groups = []
    for _, part in frame.groupby(["instance", "episodes"], sort=False):
        rows, best = [], _best(part)
        for (learner, hparams), numbers in part.groupby(["learner", "hparams"], sort=False):
            star = r"$^{*}$" if numbers.extra_knowledge.iloc[0] else ""
            cells: list[tuple[str, str]] = [(escaped(str(learner)) + star, ""), (escaped(short[str(hparams)]), "")][
                : len(first)
            ]
            for name in metrics:
                (row,) = numbers[numbers.metric == name].to_dict("records")
                cells.append(_cell(row, formats[name], best.get(name)))
            rows.append(cells)
        groups.append((_group_heading(part, frame), rows))
    everything = [cells for _, rows in groups for cells in rows]
    stacked = _width(heads, everything, stacked=False) > TEXT_WIDTH
    scaled = stacked and _width(heads, everything, stacked=True) > TEXT_WIDTH
    for lines in _pages(groups, len(heads[0]), stacked):
        columns = "l" * len(first) + "r" * len(metrics)
        head = [" & ".join(names) + r" \\" for names in heads if any(names)]
        table = [rf"\begin{{tabular}}{{@{{}}{columns}@{{}}}}", r"\toprule", *head, r"\midrule"]
        table += [*lines, r"\bottomrule", r"\end{tabular}"]
        if scaled:
            table = [r"\resizebox{\linewidth}{!}{%", *table, "}"]
        above = [rf"{{\raggedright\textit{{{_breakable(heading)}}}\par}}\smallskip"] if heading else []
        yield "\n".join(
            [rf"{{\footnotesize\setlength{{\tabcolsep}}{{{GAP:g}pt}}%", *above, r"\noindent", *table, r"\par}"]
        )


def _pages(groups: list[tuple[str, list]], columns: int, stacked: bool) -> Iterator[list[str]]:
    """The lines of each table; a group that no longer fits begins the next table."""
    height, most = 2 if stacked else 1, (MAX_LINES - 1) // (2 if stacked else 1)
    lines: list[str] = []
    used = 0
    for heading, rows in groups:
        if lines and used + 1 + height * len(rows) > MAX_LINES:
            yield lines
            lines, used = [], 0
        for i in range(0, len(rows), most):
            if i:
                yield lines
                lines, used = [], 0
            lines += [r"\addlinespace"] if lines and heading else []
            lines += (
                [rf"\multicolumn{{{columns}}}{{@{{}}l@{{}}}}{{\textit{{{escaped(heading)}}}}} \\"] if heading else []
            )
            lines += [line for cells in rows[i : i + most] for line in _row(cells, stacked)]
            used += 1 + height * len(rows[i : i + most])
    yield lines


def _row(cells: list[tuple[str, str]], stacked: bool) -> list[str]:
    """The lines of a row: each interval after its mean, or in a line of its own."""
    if not stacked:
        return [" & ".join(" ".join(filter(None, cell)) for cell in cells) + r" \\"]
    below = " & ".join(rf"\scriptsize {interval}" if interval else "" for _, interval in cells)
    return [" & ".join(mean for mean, _ in cells) + r" \\*[-0.4ex]", below + r" \\"]


def _width(heads: list[list[str]], rows: list[list[tuple[str, str]]], stacked: bool) -> float:
    """The approximate width of a table in points."""
    total = 0.0
    for k in range(len(heads[0])):
        cells = [row[k] for row in rows]
        texts = [max(_letters(mean), 0.88 * _letters(interval)) if stacked else _letters(f"{mean} {interval}".strip())
                 for mean, interval in cells]  # fmt: skip
        total += max([*texts, *(_letters(head[k]) for head in heads)]) + 2 * GAP
    return total - 2 * GAP


def _letters(text: str) -> float:
    """The approximate width of a text in footnote size, in points."""
    plain = re.sub(r"\\text\w+|\\(?=[_%&#])|[{}$^]", "", text)
    return 1.02 * sum(
        2.5 if c in ",.[] :" else 3.3 if c in "ijlft" else 6.8 if c in "mw-" or c.isupper() else 4.3 for c in plain
    )


def _breakable(text: str) -> str:
    """The escaped text, which can also be broken after a comma without a space."""
    return re.sub(r",(?=\S)", r",\\allowbreak ", escaped(text))


def _group_heading(part: Any, frame: Any) -> str:
    """The heading of a group of rows: the instance if there are several, and T if it differs."""
    row, parts = part.iloc[0], []
    if frame.instance.nunique() > 1:
        parts.append(f"{row.instance_name} ({row.instance})")
    if frame.episodes.nunique() > 1:
        parts.append(f"T = {row.episodes:,}")
    return ", ".join(parts)


def _format(rows: Any) -> Any:
    return column_format([*rows["mean"], *rows["low"], *rows["high"]])


def _unit(frame: Any, name: str) -> str:
    """The metric's unit, if that is the same in all rows."""
    units = set(frame[frame.metric == name].unit)
    return f"({escaped(units.pop())})" if len(units) == 1 else ""


def _best(part: Any) -> dict[str, float]:
    """The lowest mean of each strong metric, if there is more than one row."""
    fair = part[(part.extra_knowledge == "") & ~part.learner.isin(REFERENCES)]
    return {
        str(name): float(rows["mean"].min())
        for name, rows in fair.groupby("metric")
        if str(name).startswith("strong") and len(rows) > 1
    }


def _cell(row: dict[str, Any], shown: Any, best: float | None) -> tuple[str, str]:
    """The mean and the interval; a dash if there is no value."""
    if not row["seeds"]:
        return "--", ""
    mean, low, high = (re.sub("^-(?=.)", "$-$", shown(row[name])) for name in ("mean", "low", "high"))
    fair = not row["extra_knowledge"] and row["learner"] not in REFERENCES
    mean = f"\\textbf{{{mean}}}" if fair and row["mean"] == best else mean
    return mean, f"[{low}, {high}]" if low != "-" else ""
