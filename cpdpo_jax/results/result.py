"""What a run returns: a labelled data set, and the questions one asks of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpdpo_jax.common import files
from cpdpo_jax.results import statistics, tables
from cpdpo_jax.results.statistics import METRICS

if TYPE_CHECKING:
    import xarray as xr


class NonFiniteError(FloatingPointError):
    """A value that is not finite came up; `.result` holds what was done before it and all other seeds."""

    def __init__(self, message: str, result: Result) -> None:
        super().__init__(message)
        self.result = result


@dataclass(frozen=True, eq=False)
class Result:
    """The curves of a run. `data` is an xarray Dataset with dimensions learner, instance, setting, seed, episode,
    constraint; cumulative metrics at the checkpoints, parameters, optimum and versions all in it.
    """

    data: xr.Dataset

    @property
    def interrupted(self) -> bool:
        """Ended by Ctrl-C: curves are NaN from where they were cut."""
        return bool(self.data.attrs["interrupted"])

    def metric(self, name: str) -> xr.DataArray:
        """A cumulative metric, [learner, instance, setting, seed, episode]; violations by their worst constraint.

        The worst constraint is chosen by its sum (max_i of the sums, as in Section 3.3), not episode by episode.
        """
        return statistics.metric(self.data, name)

    def summary(self) -> str:
        """A table at the last episode: mean, median and 95 % bootstrap interval of the mean over seeds."""
        return tables.summary_table(self.data)

    def compare(self, a: str, b: str) -> str:
        """Paired differences a - b over seeds at the last episode, with 95 % bootstrap intervals.

        Both learners faced the same draws, seed by seed, so the intervals are narrower than those of each alone.
        """
        return tables.comparison_table(self.data, a, b)

    def growth_exponent(self, *others: Result, metric: str = "strong_regret") -> xr.Dataset:
        """The slope of log metric against log T, with its 95 % bootstrap interval over seeds.

        With `others`: across runs of different T, each with its own learning rate: what the theorems speak of. Alone:
        along the second half (in log T) of this one run, whose learning rate is fixed: a description, not the rate.
        """
        return statistics.growth_exponent([run.data for run in (self, *others)], metric)

    def monitor_table(self) -> str:
        """What the monitor saw: failures, least slack, and the concentration lemmas' bounds against what happened."""
        return tables.monitor_table(self.data)

    def plot(self, *, title: str | None = None) -> Any:
        """Strong and weak regret and violation against episodes with intervals over seeds; a matplotlib Figure."""
        from cpdpo_jax.results.figures import curves

        return curves(self.data, title=title)

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """One row per learner, instance, setting, seed, checkpoint and constraint."""
        names = [*METRICS, "multiplier", "regret_gap", "violation_gap", "epochs", "infeasible"]
        frame = self.data[names].to_dataframe().reset_index()
        files.write(path, frame.to_csv(index=False))

    def save(self, path: str | os.PathLike[str]) -> None:
        """One netCDF file that xarray opens; whole or not at all."""
        files.write(path, self.data.to_netcdf(engine="h5netcdf"))

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Result:
        """A result saved before."""
        if not Path(path).is_file():
            raise ValueError(f"there is no file {str(path)!r}; give the path that was saved to.")
        import xarray as xr

        with xr.open_dataset(path, engine="h5netcdf") as data:
            return Result(data.load())
