"""Figures and a self-contained HTML page from the finished blocks of run directories."""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpdpo_jax.common import files
from cpdpo_jax.common.text import file_stem
from cpdpo_jax.results import export
from cpdpo_jax.results.latex import latex_table
from cpdpo_jax.results.statistics import STRONG
from cpdpo_jax.sweeps import report_data
from cpdpo_jax.sweeps.load import Table, in_units, load_runs, rows, shown
from cpdpo_jax.sweeps.store import Store

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

MAX_FIGURES = 6  # pairs of instance and T with figure files, one second each; the page saves the others
SCRIPTS = (
    "scales.js",
    "state.js",
    "panels.js",
    "chart.js",
    "tables.js",
    "page.js",
)  # in this order


def write(
    stores: list[Store],
    out: Path,
    log: Callable[[str], None] = lambda text: None,
    *,
    units: str = "source",
    draw: bool = True,
    csv: bool = False,
    latex: bool = False,
    metrics: Sequence[str] = STRONG,
) -> dict[str, Any]:
    """Write OUT/report.html and return the paths and the rows of the table.

    draw: also figures/*.pdf and *.png; csv: also curves.csv; latex: also table.tex, of these metrics.
    """
    tables = in_units(load_runs(stores), units)
    if not tables:
        paths = ", ".join(str(store.path) for store in stores)
        raise ValueError(f"{paths}: no block is finished yet; run `cpdpo resume` first.")
    stored, tables = tables, shown(tables)
    all_rows = rows(tables)
    folder = out / "figures"
    page = _page(stores, tables, all_rows)
    (folder if draw else out).mkdir(parents=True, exist_ok=True)  # only after everything has been read
    files.write(out / "report.html", page)
    if csv:
        files.write(out / "curves.csv", _frame(stored).to_csv(index=False))
    if latex:
        runs = [(table.environment, table.result.data) for table in tables]
        files.write(out / "table.tex", latex_table(runs, metrics=metrics))
    figures = []
    for name, figure in _figures(tables, log) if draw else ():
        log(f"figure {name}")
        for suffix in ("png", "pdf"):
            path = folder / f"{name}.{suffix}"
            _save(figure, path, suffix)
            figures.append(str(path))
            figure.set_layout_engine(None)  # saving the first file has laid it out; "none" would draw it once more
    extra = {name: str(out / file) for name, file, requested in
             (("csv", "curves.csv", csv), ("latex", "table.tex", latex)) if requested}  # fmt: skip
    return {"report": str(out / "report.html"), **extra, "figures": figures, "rows": all_rows}


def _page(stores: list[Store], tables: list[Table], all_rows: list[dict[str, Any]]) -> str:
    """The page: `report_page/index.html` with style, library, scripts and data inserted."""
    folder = resources.files("cpdpo_jax.sweeps").joinpath("report_page")

    def text(*names: str) -> str:
        return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)

    numbers = json.dumps(report_data.payload(tables, all_rows), allow_nan=False, separators=(",", ":"))
    parts = {
        "STYLE": text("style.css"),
        "ABOUT": json.dumps(report_data.about(stores, all_rows)).replace("<", "\\u003c"),
        "DATA": base64.b64encode(gzip.compress(numbers.encode(), mtime=0)).decode(),
        "LIBRARY": text("vendor/echarts.common.min.js"),
        "SCRIPT": text(*SCRIPTS),
    }
    return re.sub("@([A-Z]+)@", lambda place: parts[place[1]], text("index.html"))


def _frame(tables: list[Table]) -> pd.DataFrame:
    """The rows of `Result.to_dataframe` for all environments and T, in the units of the tables."""
    import pandas as pd

    frames = []
    for table in tables:
        frame = export.dataframe(table.result.data)
        frame.insert(0, "T", table.episodes)
        frame.insert(0, "environment", table.environment)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def _figures(tables: list[Table], log: Callable[[str], None]) -> Iterator[tuple[str, Figure]]:
    """The figures with the names of their files; each is closed when the next one is requested."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    from cpdpo_jax.results import figures

    used: set[str] = set()
    panels = sorted(report_data.panels(tables), key=lambda panel: -panel[0].episodes)
    if len(panels) > MAX_FIGURES:
        log(f"figures of {MAX_FIGURES} of {len(panels)} instances and T; report.html shows all and saves each as SVG")
    for table, result, instance in panels[:MAX_FIGURES]:
        several = table.result.data.sizes["instance"] > 1
        label = f"{table.environment}, instance {instance}" if several else table.environment
        stem = _file_name(label, f"T{table.episodes}", used)
        for kind, draw in (("curves", figures.curves), ("details", figures.details)):
            figure = draw(result.data, title=f"{label}, T = {table.episodes:,}")
            yield f"{stem}-{kind}", figure
            plt.close(figure)
    groups = [(group, number) for group in report_data.growth_groups(tables)
              for number in group[0].result.data.instance.values]  # fmt: skip
    for group, instance in groups[:MAX_FIGURES]:
        figure = figures.growth([table.result.data.sel(instance=[instance]) for table in group])
        number = f", instance {instance}" if group[0].result.data.sizes["instance"] > 1 else ""
        yield _file_name(group[0].environment + number, "growth", used), figure
        plt.close(figure)


def _file_name(label: str, ending: str, used: set[str]) -> str:
    """A name for a figure's files that is unique, also on case-insensitive file systems."""
    name = plain = file_stem(label.replace(".npz", "").rpartition("/")[2], ending)
    n = 1
    while name.lower() in used:
        n += 1
        name = f"{plain}-{n}"
    used.add(name.lower())
    return name


def _save(figure: Figure, path: Path, suffix: str) -> None:
    """Save a figure without dates, so that equal figures give equal files."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=suffix, dpi=150, metadata={"CreationDate": None} if suffix == "pdf" else None)
    files.write(path, buffer.getvalue())
