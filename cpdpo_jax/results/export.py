"""Results for other tools: a pandas table, and scores for rliable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cpdpo_jax.results.statistics import METRICS, at_end, metric

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

COLUMNS = (*METRICS, "regret_gap", "epochs", "infeasible")  # one number per seed and checkpoint
EACH = ("strong_violation", "weak_violation", "violation_gap", "multiplier")  # one number per constraint


def dataframe(data: xr.Dataset) -> pd.DataFrame:
    """One row per learner, instance, hparams, seed and checkpoint; see `Result.to_dataframe`."""
    m = data.sizes["constraint"]
    columns = {name: metric(data, name) if name in METRICS else data[name] for name in COLUMNS}
    if m > 1:
        begun = data["strong_violation"].notnull().all("constraint")
        columns["worst_constraint"] = data["strong_violation"].fillna(-np.inf).argmax("constraint").where(begun)
    for name in EACH:
        for i in range(m):
            column = data[name].isel(constraint=i, drop=True)
            if m > 1:
                columns[f"{name}_{i}"] = column
            elif name not in METRICS:
                columns[name] = column
    frame = data[[]].assign(columns).drop_vars("constraint", errors="ignore").to_dataframe().reset_index()
    frame = frame.dropna(subset=list(METRICS), how="all").reset_index(drop=True)
    return frame.astype({"worst_constraint": "Int64"}) if "worst_constraint" in frame else frame


def rliable_scores(runs: Sequence[xr.Dataset], name: str) -> dict[str, np.ndarray]:
    """Scores [seeds, tasks] by learner (and by hparams if there are several); see `Result.to_rliable`."""
    scores: dict[str, list[np.ndarray]] = {}
    for run in runs:
        ends = -at_end(run, name) / (run["T"] if "T" in run.coords else float(run.episode.values[-1]))
        ends = ends.transpose("learner", "hparams", "instance", "seed")
        for learner, hparams in np.ndindex(ends.shape[:2]):
            values = ends.values[learner, hparams]
            if np.isfinite(values).any():
                several = ends.shape[1] > 1
                label = f"{run.learner.values[learner]}" + (f", {run.hparams.values[hparams]}" if several else "")
                scores.setdefault(label, []).extend(task[np.isfinite(task)] for task in values)
    for label, tasks in scores.items():
        if len({len(task) for task in tasks}) > 1 or not len(tasks[0]):
            counts = sorted({len(task) for task in tasks})
            raise ValueError(f"{label} has {counts} finished seeds on different tasks; run the same seeds on each.")
    sizes = {label: len(tasks) for label, tasks in scores.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(
            f"learners were run on different numbers of tasks ({sizes}); give results that contain all learners."
        )
    return {label: np.stack(tasks, axis=1) for label, tasks in scores.items()}
