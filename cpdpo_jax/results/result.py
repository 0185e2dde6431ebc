"""`Result`: the labelled data set of a run, with statistics, tables, figures and files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cpdpo_jax.common import files
from cpdpo_jax.common.text import counted
from cpdpo_jax.results import comparison, export, significance, statistics, summary, tables
from cpdpo_jax.results import units as unit
from cpdpo_jax.results.copies import without_copies
from cpdpo_jax.results.statistics import METRICS, STRONG, Metric
from cpdpo_jax.results.units import UnitsName

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import xarray as xr
    from matplotlib.figure import Figure

    from cpdpo_jax.results.panels import AxesLike, Size, Style


class NonFiniteError(FloatingPointError):
    """A run had non-finite values; `.result` has all curves, which are NaN from their first such value on."""

    def __init__(self, message: str, result: Result) -> None:
        super().__init__(message)
        self.result = result


def as_tuple(names: str | Sequence[str]) -> tuple[str, ...]:
    """One name or several as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names)


@dataclass(frozen=True, eq=False)
class Result:
    """The curves of a run.

    `data` is an xarray Dataset with dimensions learner, instance, hparams, seed, episode and constraint. It contains
    the cumulative metrics at the checkpoints, the parameters, the optimum and the versions.

    `data` and `metric` are in the learner's units, in which rewards and costs lie in [0, 1]. Tables, figures and
    exports are in the units of the CMDP's source unless units="learner". Regret and violation are differences of
    values, so they are scaled without an offset.
    """

    data: xr.Dataset  # curves, parameters, optimum and versions

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the run; curves are NaN from there on."""
        return bool(self.data.attrs["interrupted"])

    def metric(self, name: Metric, *, units: UnitsName = "learner") -> xr.DataArray:
        """A cumulative metric, [learner, instance, hparams, seed, episode]; violations are of the worst constraint.

        The worst constraint has the largest sum (max_i of the sums, as in Section 3.3); it is not chosen per episode.
        units="source" uses the units of the CMDP's source, in which a different constraint may be the worst.
        """
        return statistics.metric(unit.convert(self.data, units), name)

    def __repr__(self) -> str:
        """The learners and sizes of the run in a line."""
        data, suffix = self.data, ", interrupted" if self.interrupted else ""
        instances, seeds = (counted(data.sizes[dim], dim) for dim in ("instance", "seed"))
        sizes = f"{instances}, {data.sizes['hparams']} hparams, {seeds}"
        learners = ", ".join(map(str, data.learner.values))
        return f"Result({learners}: {sizes}, {counted(int(data.episode[-1]), 'episode')}{suffix})"

    def _repr_html_(self) -> str:
        """The summary, for notebooks."""
        return self.summary()._repr_html_()

    def summary(self, *, units: UnitsName = "source") -> tables.TextTable:
        """The table of all metrics at T: mean, median and 95 % bootstrap interval of the mean over seeds.

        It is a text that a notebook renders as a table.
        """
        return summary.summary_table(self._shown(units))

    def summary_frame(self, *, units: UnitsName = "source") -> pd.DataFrame:
        """The numbers of `summary` as a pandas table: one row per learner, instance, hparams and metric.

        Columns: mean, low and high (95 % bootstrap interval of the mean over seeds), median, per_episode; rho, delta
        and safety as numbers, or NaN; for violations the constraint that is the worst in most seeds and the share of
        these seeds; the metric's unit. A learner whose curves are equal for all values of rho has one row, "any rho".
        """
        return summary.summary_frame(self._shown(units))

    def to_latex(
        self,
        *,
        metrics: Metric | Sequence[Metric] = STRONG,
        units: UnitsName = "source",
        caption: str = "",
        label: str = "",
    ) -> str:
        """A LaTeX table (package booktabs) of means at T with 95 % intervals; the lowest strong metrics are bold.

        Weak metrics and learners with extra knowledge are never bold. With a caption or a label the result is a
        `table`, otherwise a `tabular`. It fits a page of `article`: many rows are split into several tables.
        """
        from cpdpo_jax.results.latex import latex_table

        return latex_table([("", self._shown(units))], metrics=as_tuple(metrics), caption=caption, label=label)

    def compare(self, a: str | None = None, b: str | None = None, *, units: UnitsName = "source") -> tables.TextTable:
        """Paired differences a - b over seeds at the last episode, with 95 % bootstrap intervals.

        All learners use common random numbers, so the intervals are narrower than those of unpaired differences.
        Hparams are paired by name, or all with all if no name is shared; a = b compares the hparams of one learner.
        Runs of different T are not paired. An interrupted run is compared at the last checkpoint that all seeds
        reached, which the column "at T" shows.

        Without a and b, the table has these pairs for all learners by the strong metrics, with effect sizes and p
        values that are corrected for the number of comparisons (see `compare_frame`).
        """
        data = self._shown(units)
        if a is None and b is None:
            frame = significance.with_holm(comparison.pairs_frame(data))
            return comparison.pairs_table(frame, unit.remark(data))
        if a is None or b is None:
            raise ValueError("compare has only one learner; give both a and b, or neither for all pairs.")
        return comparison.comparison_table(data, a, b)

    def compare_frame(
        self, *, metrics: Metric | Sequence[Metric] = STRONG, units: UnitsName = "source"
    ) -> pd.DataFrame:
        """The pairs of `compare` for all learners as a pandas table: one row per instance, pair and metric.

        difference, low, high   mean of a - b over seeds and its 95 % bootstrap interval
        effect_size             mean / standard deviation of the paired differences (Cohen's d_z)
        a_lower                 share of seeds in which a is lower
        p, p_holm               two-sided sign-flip test over seeds, and Holm's correction for all rows
        a_rho, b_rho            the values of rho, if the result has several; likewise delta and safety
        """
        return significance.with_holm(comparison.pairs_frame(self._shown(units), as_tuple(metrics)))

    def growth_exponent(self, *others: Result, metric: Metric = "strong_regret") -> xr.Dataset:
        """The slope of log metric against log T, with its 95 % bootstrap interval over seeds.

        With `others`, the slope is across runs of different T, each with its own learning rate, as in the theorems.
        Without them, it is along the second half (in log T) of this run, whose learning rate is fixed; this describes
        the curve, but does not estimate the rate of the theorems.
        """
        return statistics.growth_exponent([run.data for run in (self, *others)], metric)

    def monitor_table(self) -> str:
        """The table of the monitor: failures, least slack, and sums with the bounds of the concentration lemmas."""
        return tables.monitor_table(self.data)

    def plot(
        self,
        *,
        metrics: Metric | Sequence[Metric] = METRICS,
        learners: str | Sequence[str] | None = None,
        axes: AxesLike = None,
        size: Size = None,
        log: bool | None = None,
        title: str | None = None,
        units: UnitsName = "source",
        style: Style = "screen",
    ) -> Figure:
        """Plot metrics against episodes, with the mean and a 95 % band over seeds.

        metrics   one panel each: strong_regret, weak_regret, strong_violation, weak_violation
        learners  the learners to plot; None: all
        axes      the matplotlib Axes to draw in, one per metric; None: a new figure
        size      of a new figure: inches, "one-column" or "two-column"; text, lines and markers scale with the panels
        log       True: logarithmic axes, False: linear axes, None: logarithmic if the data allow it
        title     text above the panels
        units     "source" or "learner"
        style     "screen", or "paper": 8 point text, only your title, one column wide unless `size` differs
        """
        from cpdpo_jax.results.figures import curves

        data = self._select(learners, units)
        return curves(data, metrics=as_tuple(metrics), axes=axes, size=size, log=log, title=title, style=style)

    def plot_tradeoff(
        self,
        *,
        metrics: tuple[Metric, Metric] = ("strong_violation", "strong_regret"),
        learners: str | Sequence[str] | None = None,
        axes: AxesLike = None,
        size: Size = None,
        log: bool | None = None,
        title: str | None = None,
        units: UnitsName = "source",
        style: Style = "screen",
    ) -> Figure:
        """Plot regret against violation at T, with a point per learner and hparams, and a panel per instance.

        Points have 95 % intervals. `metrics` names the horizontal and the vertical axis, and `axes` has one matplotlib
        Axes per instance. The other options are those of `plot`.
        """
        from cpdpo_jax.results.tradeoff import tradeoff

        data = self._select(learners, units)
        return tradeoff(data, metrics=metrics, axes=axes, size=size, log=log, title=title, style=style)

    def _shown(self, units: UnitsName) -> xr.Dataset:
        """What tables and figures show: the data in the given units, with equal curves of a learner once."""
        return without_copies(unit.convert(self.data, units))

    def _select(self, learners: str | Sequence[str] | None, units: UnitsName) -> xr.Dataset:
        """What figures show of the given learners."""
        data = self._shown(units)
        if learners is None:
            return data
        known = [str(name) for name in data.learner.values]
        names = as_tuple(learners)
        for name in names:
            if name not in known:
                raise ValueError(f"there is no learner {name!r} in this result; it has {', '.join(known)}.")
        return data.sel(learner=list(names))

    def to_dataframe(self, *, units: UnitsName = "source") -> pd.DataFrame:
        """A pandas table with one row per learner, instance, hparams, seed and checkpoint.

        strong_violation and weak_violation are those of the constraint with the largest sum, as in all tables. With
        several constraints, worst_constraint is its number for strong_violation, and each constraint has its own
        columns: strong_violation_0, ..., weak_violation_0, ..., violation_gap_0, ..., multiplier_0, ...
        """
        return export.dataframe(unit.convert(self.data, units))

    def to_rliable(self, *others: Result, metric: Metric = "strong_regret") -> dict[str, np.ndarray]:
        """Scores for rliable: for each learner an array [seeds, tasks], in which tasks are instances.

        A score is -metric / T in the learner's units, since larger scores are better for rliable. The instances of
        `others` are added as tasks.
        """
        return export.rliable_scores([run.data for run in (self, *others)], metric)

    def to_csv(self, path: str | os.PathLike[str], *, units: UnitsName = "source") -> None:
        """Write the rows of `to_dataframe` to a file atomically."""
        files.write(path, self.to_dataframe(units=units).to_csv(index=False))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a netCDF4 file atomically, with a checksum at its end; xarray can open it."""
        from cpdpo_jax.results import netcdf

        try:
            content = netcdf.encode(self.data)
        except TypeError:  # a user's variable that only xarray can write
            content = bytes(self.data.to_netcdf(engine="h5netcdf"))
        files.write(path, files.seal(content))

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Result:
        """Read a result that `save` wrote; a damaged file raises `DamagedError`."""
        if not Path(path).is_file():
            raise ValueError(f"there is no file {str(path)!r}; give the path of a saved result.")
        from cpdpo_jax.results import netcdf

        return Result(netcdf.read(Path(path)).dataset())
