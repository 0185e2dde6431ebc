"""Figures for a paper and one self-contained page, from what run directories have finished."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from cpdpo_jax.common import files
from cpdpo_jax.results import export
from cpdpo_jax.sweeps import report_data
from cpdpo_jax.sweeps.load import in_units, load_runs, rows
from cpdpo_jax.sweeps.store import Store


def write(
    stores: list[Store],
    out: Path,
    say: Callable[[str], None] = lambda text: None,
    *,
    units: str = "source",
    draw: bool = True,
    csv: bool = False,
) -> dict[str, Any]:
    """Write OUT/report.html, with `draw` OUT/figures/*.pdf and *.png, with `csv` OUT/curves.csv; paths and rows."""
    tables = in_units(load_runs(stores), units)
    if not tables:
        raise ValueError(f"{', '.join(str(store.path) for store in stores)}: no block is finished yet.")
    folder = out / "figures"
    page = resources.files("cpdpo_jax.sweeps").joinpath("report.html").read_text(encoding="utf-8")
    data = json.dumps(report_data.payload(stores, tables), allow_nan=False).replace("<", "\\u003c")
    (folder if draw else out).mkdir(parents=True, exist_ok=True)  # not before all has been read
    files.write(out / "report.html", page.replace("@DATA@", data))
    if csv:
        files.write(out / "curves.csv", _frame(tables).to_csv(index=False))
    figures = []
    for name, figure in _figures(tables) if draw else ():
        say(f"figure {name}")
        for suffix in ("png", "pdf"):
            path = folder / f"{name}.{suffix}"
            _save(figure, path, suffix)
            figures.append(str(path))
            figure.set_layout_engine("none")  # the first file has laid it out
    extra = {"csv": str(out / "curves.csv")} if csv else {}
    return {"report": str(out / "report.html"), **extra, "figures": figures, "rows": rows(tables)}


def _frame(tables: list[Any]) -> Any:
    """The rows of `Result.to_dataframe` of all environments and T, in the units that the tables are in."""
    import pandas as pd

    frames = []
    for table in tables:
        frame = export.dataframe(table.result.data)
        frame.insert(0, "T", table.episodes)
        frame.insert(0, "environment", table.environment)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def _figures(tables: list[Any]):
    """Every figure with its file's name; each is closed when the next is asked for."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    from cpdpo_jax.results import figures

    used: set[str] = set()
    for table, result, instance in report_data.panels(tables):
        several = table.result.data.sizes["instance"] > 1
        where = f"{table.environment} #{instance}" if several else table.environment
        stem = _file_name(f"{where}-T{table.episodes}", used)
        for kind, draw in (("curves", figures.curves), ("details", figures.details)):
            figure = draw(result.data, title=f"{where}, T = {table.episodes:,}")
            yield f"{stem}-{kind}", figure
            plt.close(figure)
    for group in report_data.growing(tables):
        for i, instance in enumerate(group[0].result.data.instance.values[: report_data.MOST_INSTANCES]):
            figure = figures.growth([table.result.data.isel(instance=[i]) for table in group])
            number = f" #{instance}" if group[0].result.data.sizes["instance"] > 1 else ""
            yield f"{_file_name(group[0].environment + number, used)}-growth", figure
            plt.close(figure)


def _file_name(text: str, used: set[str]) -> str:
    """Letters, digits and dashes, not used before."""
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", text.replace(".npz", "").rpartition("/")[2]).strip("-")[:80]
    name, n = plain, 1
    while name in used:
        n += 1
        name = f"{plain}-{n}"
    used.add(name)
    return name


def _save(figure: Any, path: Path, suffix: str) -> None:
    """The same bytes for the same figure: no dates inside."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=suffix, dpi=150, metadata={"CreationDate": None} if suffix == "pdf" else None)
    files.write(path, buffer.getvalue())
