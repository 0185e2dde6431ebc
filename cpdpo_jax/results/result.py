"""What a run returns: a labelled data set, and the questions one asks of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpdpo_jax.common import files
from cpdpo_jax.results import export, statistics, tables
from cpdpo_jax.results import units as unit
from cpdpo_jax.results.statistics import METRICS

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
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

    `data` and `metric` are in the learner's units, in which rewards and costs lie in [0, 1]. What is shown to people
    (summary, compare, plot, to_dataframe, to_csv) is in the units of the CMDP's source, unless units="learner" asks for
    those: regret and violation are differences of values, so they are scaled and not offset.
    """

    data: xr.Dataset

    @property
    def interrupted(self) -> bool:
        """Ended by Ctrl-C: curves are NaN from where they were cut."""
        return bool(self.data.attrs["interrupted"])

    def metric(self, name: str, *, units: str = "learner") -> xr.DataArray:
        """A cumulative metric, [learner, instance, setting, seed, episode]; violations by their worst constraint.

        The worst constraint is chosen by its sum (max_i of the sums, as in Section 3.3), not episode by episode.
        units="source": in those of the CMDP's source, where the largest number may be another constraint's.
        """
        return statistics.metric(unit.shown(self.data, units), name)

    def __repr__(self) -> str:
        """What was run, in a line."""
        data, ended = self.data, ", interrupted" if self.interrupted else ""
        sizes = f"{data.sizes['instance']} instances, {data.sizes['setting']} settings, {data.sizes['seed']} seeds"
        return f"Result({', '.join(map(str, data.learner.values))}: {sizes}, {int(data.episode[-1]):,} episodes{ended})"

    def _repr_html_(self) -> str:
        """For notebooks: the summary."""
        return self.summary()._repr_html_()

    def summary(self, *, units: str = "source") -> tables.TextTable:
        """A table at the last episode: mean, median and 95 % bootstrap interval of the mean over seeds.

        It is a text; a notebook shows it as a table.
        """
        return tables.summary_table(unit.shown(self.data, units))

    def compare(self, a: str, b: str, *, units: str = "source") -> tables.TextTable:
        """Paired differences a - b over seeds at the last episode, with 95 % bootstrap intervals.

        Both learners faced the same draws, seed by seed, so the intervals are narrower than those of each alone.
        Settings are paired by name; where the learners' settings have different names, each with each. With a = b: the
        settings of one learner. A run that was interrupted is compared at the last checkpoint that all seeds reached.
        """
        return tables.comparison_table(unit.shown(self.data, units), a, b)

    def growth_exponent(self, *others: Result, metric: str = "strong_regret") -> xr.Dataset:
        """The slope of log metric against log T, with its 95 % bootstrap interval over seeds.

        With `others`: across runs of different T, each with its own learning rate: what the theorems speak of. Alone:
        along the second half (in log T) of this one run, whose learning rate is fixed: a description, not the rate.
        """
        return statistics.growth_exponent([run.data for run in (self, *others)], metric)

    def monitor_table(self) -> str:
        """What the monitor saw: failures, least slack, and the concentration lemmas' bounds against what happened."""
        return tables.monitor_table(self.data)

    def plot(
        self,
        *,
        metrics: str | Sequence[str] = METRICS,
        learners: str | Sequence[str] | None = None,
        axes: Any = None,
        size: tuple[float, float] | None = None,
        log: bool | None = None,
        title: str | None = None,
        units: str = "source",
    ) -> Any:
        """Metrics against episodes, mean and 95 % band over seeds; a matplotlib Figure, which a notebook shows once.

        metrics   which, a panel each: strong_regret, weak_regret, strong_violation, weak_violation
        learners  which; None: all
        axes      the matplotlib Axes to draw in, one per metric; None: a figure of its own
        size      of that figure, in inches
        log       True: logarithmic axes, False: linear ones; None: both logarithmic where the data allow, else linear
        title     above the panels
        units     "source" or "learner"
        """
        from cpdpo_jax.results.figures import curves

        if size is not None and (isinstance(size, (int, float)) or len(size) != 2):
            raise ValueError(f"size = {size!r}; give width and height in inches, such as (9, 4).")
        chosen = (metrics,) if isinstance(metrics, str) else tuple(metrics)
        data = unit.shown(self.data, units)
        if learners is not None:
            data = data.sel(learner=self._known([learners] if isinstance(learners, str) else list(learners)))
        return curves(data, metrics=chosen, axes=axes, size=size, log=log, title=title)

    def _known(self, learners: list[str]) -> list[str]:
        """Learners' names, all of them in this result."""
        known = [str(name) for name in self.data.learner.values]
        for name in learners:
            if name not in known:
                raise ValueError(f"there is no learner {name!r} in this result; it has {', '.join(known)}.")
        return learners

    def to_dataframe(self, *, units: str = "source") -> pd.DataFrame:
        """A pandas table: one row per learner, instance, setting, seed, checkpoint and constraint that was run."""
        return export.dataframe(unit.shown(self.data, units))

    def to_rliable(self, *others: Result, metric: str = "strong_regret") -> dict[str, np.ndarray]:
        """Scores as rliable takes them: for each learner an array [seeds, tasks], a task being an instance.

        A score is - metric / T in the learner's units, since rliable takes larger ones to be better. `others` add
        their instances as tasks.
        """
        return export.rliable_scores([run.data for run in (self, *others)], metric)

    def to_csv(self, path: str | os.PathLike[str], *, units: str = "source") -> None:
        """The rows of `to_dataframe` in a file, whole or not at all."""
        files.write(path, self.to_dataframe(units=units).to_csv(index=False))

    def save(self, path: str | os.PathLike[str]) -> None:
        """One netCDF4 file that xarray opens, with a checksum behind it; whole or not at all."""
        from cpdpo_jax.results import netcdf

        try:
            content = netcdf.encode(self.data)
        except TypeError:  # a variable of your own that only xarray can write
            content = bytes(self.data.to_netcdf(engine="h5netcdf"))
        files.write(path, files.sealed(content))

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Result:
        """A result saved before; a file that was damaged since is refused."""
        if not Path(path).is_file():
            raise ValueError(f"there is no file {str(path)!r}; give the path that was saved to.")
        from cpdpo_jax.results import netcdf

        return Result(netcdf.read(Path(path)).dataset())
