"""What a run returns: a labelled data set, and the questions one asks of it."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

import cpdpo_jax
from cpdpo_jax.common import files
from cpdpo_jax.exact.optimum import Solution
from cpdpo_jax.learners import settings
from cpdpo_jax.results import statistics
from cpdpo_jax.simulation import monitor
from cpdpo_jax.simulation.blocks import LaneIndex, LearnerPlan
from cpdpo_jax.simulation.curves import BlockCurves

if TYPE_CHECKING:
    import xarray as xr

LANE_DIMS = ("instance", "setting", "seed")
METRICS = ("strong_regret", "weak_regret", "strong_violation", "weak_violation")


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
        if name not in METRICS:
            raise ValueError(f"there is no metric {name!r}; choose one of {', '.join(METRICS)}.")
        data = self.data[name]
        return data.max("constraint", skipna=False) if "constraint" in data.dims else data

    def summary(self) -> str:
        """A table at the last episode: mean, median and 95 % bootstrap interval of the mean over seeds."""
        return statistics.summary_table(self)

    def compare(self, a: str, b: str) -> str:
        """Paired differences a - b over seeds at the last episode, with 95 % bootstrap intervals.

        Both learners faced the same draws, seed by seed, so the intervals are narrower than those of each alone.
        """
        return statistics.comparison_table(self, a, b)

    def growth_exponent(self, *others: Result, metric: str = "strong_regret") -> xr.Dataset:
        """The slope of log metric against log T, with its 95 % bootstrap interval over seeds.

        With `others`: across runs of different T, each with its own learning rate: what the theorems speak of. Alone:
        along the second half (in log T) of this one run, whose learning rate is fixed: a description, not the rate.
        """
        return statistics.growth_exponent([self, *others], metric)

    def monitor_table(self) -> str:
        """What the monitor saw: failures, least slack, and the concentration lemmas' bounds against what happened."""
        return statistics.monitor_table(self)

    def plot(self, *, title: str | None = None) -> Any:
        """Strong and weak regret and violation against episodes with intervals over seeds; a matplotlib Figure."""
        from cpdpo_jax.results.figures import curves

        return curves(self, title=title)

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


def assemble(
    works: list[LearnerPlan],
    records: list[list[tuple[LaneIndex, BlockCurves]]],
    seeds: np.ndarray,
    solution: Solution,
    asked: dict[str, Any],
    seconds: float,
    interrupted: bool,
) -> Result:
    """Put the blocks' records into one labelled data set; `asked` is what `simulate` was asked for."""
    import xarray as xr  # not above: it takes half a second, which a run can have while it computes

    cmdp, points = works[0].cmdp, works[0].checkpoints
    labels = list(dict.fromkeys(setting.label for work in works for setting in work.settings))
    m = cmdp.n_constraints
    lead = (len(works), cmdp.batch_shape[0], len(labels), len(seeds))
    shapes = {name: getattr(records[0][0][1], name).shape[:-1] for name in BlockCurves._fields if name != "done"}
    full = {name: np.full(lead + shape, np.nan) for name, shape in shapes.items()}
    position = {int(seed): i for i, seed in enumerate(seeds)}
    for w, (work, pieces) in enumerate(zip(works, records, strict=False)):
        of_setting = np.array([labels.index(setting.label) for setting in work.settings])
        for lane, record in pieces:
            real = lane.real
            at = (w, lane.instance[real], of_setting[lane.setting[real]], [position[int(s)] for s in lane.seed[real]])
            for name, array in full.items():
                array[at] = np.moveaxis(getattr(record, name)[..., real], -1, 0)
    curve = ("learner", *LANE_DIMS, "episode")
    per_constraint = (*curve, "constraint")
    unit = {"units": "reward per episode, summed over episodes"}
    data = xr.Dataset(
        {
            "strong_regret": (curve, full["strong"][..., 0], unit),
            "weak_regret": (curve, full["weak"][..., 0], unit),
            "strong_violation": (per_constraint, full["strong"][..., 1:], {"units": "cost per episode, summed"}),
            "weak_violation": (per_constraint, full["weak"][..., 1:], {"units": "cost per episode, summed"}),
            "regret_gap": (curve, full["gaps"][..., 0], {"units": "reward", "long_name": "OPT - V(r), last iterate"}),
            "violation_gap": (per_constraint, full["gaps"][..., 1:], {"units": "cost", "long_name": "V(g) - alpha"}),
            "multiplier": (per_constraint, full["multiplier"], {"units": "reward per cost"}),
            "multiplier_mean": (per_constraint, full["multiplier_mean"], {"units": "reward per cost"}),
            "epochs": (curve, full["epochs"], {"units": "confidence sets, or LPs solved"}),
            "infeasible": (curve, full["infeasible"], {"units": "LPs without a solution; NaN: solves none"}),
            "final_policy": (("learner", *LANE_DIMS, "layer", "state", "action"), full["policy"]),
            "believed_slater_margin": (("learner", *LANE_DIMS), full["slater_margin"], {"units": "cost"}),
            "first_non_finite": (("learner", *LANE_DIMS), full["first_bad"], {"units": "episode, 0 for none"}),
            "optimum": ("instance", solution.value, {"units": "reward per episode"}),
            "slater_margin": ("instance", solution.slater_margin, {"units": "cost per episode"}),
            "optimal_multipliers": (("constraint", "instance"), solution.multipliers),
            "threshold": (("constraint", "instance"), np.asarray(cmdp.threshold)),
            "reward_scale": ("instance", np.broadcast_to(cmdp.units.reward_scale, lead[1:2])),
            "reward_offset": ("instance", np.broadcast_to(cmdp.units.reward_offset, lead[1:2])),
            "cost_scale": (("constraint", "instance"), np.broadcast_to(cmdp.units.cost_scale, (m, lead[1]))),
            "cost_offset": (("constraint", "instance"), np.broadcast_to(cmdp.units.cost_offset, (m, lead[1]))),
        },
        coords={
            "learner": [work.phases[-1].learner.name for work in works],
            "instance": works[0].first_instance + np.arange(lead[1]),
            "instance_name": ("instance", list(cmdp.names)),
            "setting": labels,
            "seed": seeds,
            "episode": ("episode", points, {"units": "episodes"}),
            "constraint": np.arange(m),
        },
    )
    for name, values in _hyperparameters(works, labels).items():
        data[f"hyper_{name}"] = (("learner", "instance", "setting"), values)
    if any(work.truth is not None for work in works):
        data = _with_monitor(data, works, full, curve)
    data.attrs.update(
        asked,
        key=str(works[0].key),
        dtype=str(works[0].dtype),
        noise=cmdp.noise,
        layers=cmdp.n_layers,
        states=cmdp.n_states,
        actions=cmdp.n_actions,
        real_states=str(np.asarray(cmdp.real_states).tolist()),
        real_actions=str(np.asarray(cmdp.real_actions).tolist()),
        interrupted=int(interrupted),
        seconds=seconds,
        versions=json.dumps(
            {"cpdpo_jax": cpdpo_jax.__version__, "jax": jax.__version__, "numpy": np.__version__,
             "python": platform.python_version()}
        ),
        device=str(jax.devices()[0]),
    )  # fmt: skip
    return Result(data)


def _hyperparameters(works: list[LearnerPlan], labels: list[str]) -> dict[str, np.ndarray]:
    """Every hyperparameter of every learner, [learner, instance, setting]; NaN where a learner has none such."""
    shape = (len(works), works[0].cmdp.batch_shape[0], len(labels))
    values: dict[str, np.ndarray] = {}
    for w, work in enumerate(works):
        for setting in work.settings:
            hyper = settings.resolve(setting, work.phases[-1].learner, work.problem)
            for name, value in hyper._asdict().items():
                table = values.setdefault(name, np.full(shape, np.nan))
                table[w, :, labels.index(setting.label)] = value
    return values


def _with_monitor(
    data: xr.Dataset, works: list[LearnerPlan], full: dict[str, np.ndarray], curve: Sequence[str]
) -> xr.Dataset:
    """Add what the monitor saw and the bounds to hold against it."""
    problem, m = works[0].problem, works[0].cmdp.n_constraints
    bounds = [monitor.concentration_bounds(problem, m, t) for t in works[0].checkpoints]
    regret, violation = monitor.order_terms(problem, m)
    return data.assign(
        failures=((*curve, "event"), full["failures"], {"units": "episodes"}),
        slack=((*curve, "event"), full["slack"]),
        width_sum=((*curve, "kind"), full["widths"]),
        width_bound=(("episode", "kind", "instance"), np.asarray(bounds)),
        regret_order_term=("instance", regret, {"long_name": "Theorem 1, constant 1, logarithms dropped"}),
        violation_order_term=("instance", violation, {"long_name": "Theorem 2, constant 1, logarithms dropped"}),
    ).assign_coords(event=list(monitor.EVENTS), kind=["reward", "cost"])
