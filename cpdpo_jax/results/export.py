"""Results for other people's tools: a pandas table, and scores as rliable takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cpdpo_jax.results.statistics import METRICS, metric

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

COLUMNS = (*METRICS, "multiplier", "regret_gap", "violation_gap", "epochs", "infeasible")


def dataframe(data: xr.Dataset) -> pd.DataFrame:
    """One row per learner, instance, setting, seed, checkpoint and constraint that was run; see `Result.to_dataframe`.

    Regret belongs to no constraint: it stands in the rows of all of them. Violations are those of the row's own.
    """
    frame = data[list(COLUMNS)].to_dataframe().reset_index()
    return frame.dropna(subset=list(METRICS), how="all").reset_index(drop=True)


def rliable_scores(runs: Sequence[xr.Dataset], name: str) -> dict[str, np.ndarray]:
    """Scores [seeds, tasks] by learner (and setting, where there are several); see `Result.to_rliable`."""
    scores: dict[str, list[np.ndarray]] = {}
    for run in runs:
        ends = -metric(run, name).isel(episode=-1) / float(run.episode.values[-1])
        ends = ends.transpose("learner", "setting", "instance", "seed")
        for learner, setting in np.ndindex(ends.shape[:2]):
            values = ends.values[learner, setting]
            if np.isfinite(values).any():
                several = ends.shape[1] > 1
                label = f"{run.learner.values[learner]}" + (f", {run.setting.values[setting]}" if several else "")
                scores.setdefault(label, []).extend(one[np.isfinite(one)] for one in values)
    for label, tasks in scores.items():
        if len({len(task) for task in tasks}) > 1 or not len(tasks[0]):
            counts = sorted({len(task) for task in tasks})
            raise ValueError(f"{label} has {counts} finished seeds on different tasks; rliable wants as many on each.")
    sizes = {label: len(tasks) for label, tasks in scores.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(
            f"learners were run on different numbers of tasks ({sizes}); give results that all of them have."
        )
    return {label: np.stack(tasks, axis=1) for label, tasks in scores.items()}
