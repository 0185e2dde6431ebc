"""Assembles the curves of blocks into one labelled data set."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from cpdpo_jax.exact.optimum import Solution
from cpdpo_jax.learners.base import Analysis
from cpdpo_jax.results.result import Result
from cpdpo_jax.simulation.curves import BlockCurves, empty_curves
from cpdpo_jax.simulation.hyperparameters import estimates_margin, learning_phases, used_in, with_hyperparameters
from cpdpo_jax.simulation.lanes import LaneIndex
from cpdpo_jax.simulation.plan import LearnerPlan

if TYPE_CHECKING:
    import xarray as xr

LANE_DIMS = ("instance", "hparams", "seed")
WATCHED = ("failures", "slack", "watched")  # of the monitor: their events and sums differ between learners

Pieces = Iterable[tuple[int, LaneIndex, BlockCurves]]  # per block: position of the learner, lanes, curves


def assemble(
    plans: list[LearnerPlan],
    pieces: Pieces,
    seeds: np.ndarray,
    solution: Solution,
    attributes: dict[str, Any],
    seconds: float,
    interrupted: bool,
) -> Result:
    """Put the curves of blocks into one labelled data set with `attributes`; missing values are NaN."""
    import xarray as xr  # imported here: it takes half a second, which overlaps with the computation

    cmdp, points = plans[0].cmdp, plans[0].checkpoints
    labels = list(dict.fromkeys(choice.label for plan in plans for choice in plan.hparams))
    m = cmdp.n_constraints
    lead = (len(plans), cmdp.batch_shape[0], len(labels), len(seeds))
    like = empty_curves(len(points), cmdp, 1, None)
    full = {name: np.full(lead + array.shape[:-1], np.nan) for name, array in like._asdict().items() if name != "done"}
    events, sums = _quantities(plans)
    full |= {name: np.full((*lead, len(points), len(events)), np.nan) for name in ("failures", "slack")}
    full["watched"] = np.full((*lead, len(points), len(sums)), np.nan)
    position = {int(seed): i for i, seed in enumerate(seeds)}
    for p, block, curves in pieces:
        label_position = np.array([labels.index(choice.label) for choice in plans[p].hparams])
        real = block.real
        seed_position = [position[int(seed)] for seed in block.seed[real]]
        index = (p, block.instance[real], label_position[block.hparams[real]], seed_position)
        analysis = plans[p].learner.analysis
        for name, array in full.items():
            values = np.moveaxis(getattr(curves, name)[..., real], -1, 0)
            if name not in WATCHED:
                array[index] = values
            elif analysis is not None and plans[p].truth is not None:
                names, all_names = (analysis.sums, sums) if name == "watched" else (analysis.events, events)
                for i, quantity in enumerate(names):
                    array[(*index, slice(None), all_names.index(quantity))] = values[..., i]
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
            "infeasible": (
                curve,
                full["infeasible"],
                {"units": "LPs without a solution, or episodes of a safe policy"},
            ),
            "final_policy": (("learner", *LANE_DIMS, "layer", "state", "action"), full["policy"]),
            "believed_slater_margin": (("learner", *LANE_DIMS), full["slater_margin"], {"units": "cost"}),
            "first_non_finite": (("learner", *LANE_DIMS), full["first_non_finite"], {"units": "episode, 0 for none"}),
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
            "learner": [plan.learner.name for plan in plans],
            "extra_knowledge": ("learner", [plan.learner.extra_knowledge or "" for plan in plans]),
            "instance": plans[0].first_instance + np.arange(lead[1]),
            "instance_name": ("instance", list(cmdp.names)),
            "hparams": labels,
            "seed": seeds,
            "episode": ("episode", points, {"units": "episodes"}),
            "constraint": np.arange(m),
        },
    )
    data = _with_options(data, plans)
    data = with_hyperparameters(data, plans, labels, full["slater_margin"])
    if any(plan.truth is not None for plan in plans):
        data = _with_monitor(data, plans, full, curve)
    data.attrs.update(
        attributes,
        key=str(plans[0].key),
        dtype=str(plans[0].dtype),
        noise=cmdp.noise,
        layers=cmdp.n_layers,
        states=cmdp.n_states,
        actions=cmdp.n_actions,
        real_states=str(np.asarray(cmdp.real_states).tolist()),
        real_actions=str(np.asarray(cmdp.real_actions).tolist()),
        interrupted=int(interrupted),
        seconds=seconds,
        versions=json.dumps(
            {"cpdpo_jax": metadata.version("cpdpo_jax"), "jax": jax.__version__, "numpy": np.__version__,
             "python": platform.python_version()}
        ),
        device=str(jax.devices()[0]),
    )  # fmt: skip
    if cmdp.unit_names:
        data.attrs["unit_names"] = json.dumps(cmdp.unit_names)
    return Result(data)


def _with_options(data: xr.Dataset, plans: list[LearnerPlan]) -> xr.Dataset:
    """Add rho, delta and safety of each choice of hparams if they are axes, and the costs of the safe policies."""
    chosen = {choice.label: choice.options for plan in plans for choice in plan.hparams}
    for name in plans[0].hparams[0].options:
        values = [chosen[label][name] for label in data.hparams.values]
        data = data.assign_coords({name: ("hparams", [np.nan if value == "solve" else value for value in values])})
    if all(plan.problems[0].safe is None for plan in plans):
        return data
    several = "safety" in data.coords
    costs = np.full([data.sizes[dim] for dim in ("learner", "hparams", "constraint", "instance")], np.nan)
    for p, plan in enumerate(plans):
        for choice, problem in zip(plan.hparams, plan.problems, strict=True):
            if problem.safe is not None:
                costs[p, data.hparams.values.tolist().index(choice.label) if several else slice(None)] = (
                    problem.safe.cost
                )
    dims = ("learner", *["hparams"] * several, "constraint", "instance")
    return data.assign(safe_cost=(dims, costs if several else costs[:, 0], {"units": "cost per episode"}))


def _quantities(plans: list[LearnerPlan]) -> tuple[list[str], list[str]]:
    """All monitored events and sums of all learners."""
    watched = [plan.learner.analysis for plan in plans if plan.truth is not None and plan.learner.analysis is not None]
    events = dict.fromkeys(event for analysis in watched for event in analysis.events)
    return list(events), list(dict.fromkeys(name for analysis in watched for name in analysis.sums))


def _allowed(plan: LearnerPlan, hparams: int, believed: np.ndarray, analysis: Analysis) -> np.ndarray:
    """The theory's bounds on the monitored sums at every checkpoint, [points, sums, instances, seeds].

    The bounds of all phases so far are added up, as the sums are, each with the constants of its phase.
    """
    m, points = plan.cmdp.n_constraints, plan.checkpoints
    total = np.zeros((len(points), len(analysis.sums), believed.size))
    for phase in learning_phases(plan):
        problem, hyper = used_in(plan, hparams, phase, believed)
        for c, t in enumerate(points):
            if t > phase.first:
                total[c] += analysis.bounds(problem, hyper, m, float(min(t, phase.last) - phase.first))
    return total.reshape(*total.shape[:2], *believed.shape)


def _with_monitor(
    data: xr.Dataset, plans: list[LearnerPlan], full: dict[str, np.ndarray], curve: Sequence[str]
) -> xr.Dataset:
    """Add the monitor's results and their theoretical bounds, which use the true rho."""
    events, sums = _quantities(plans)
    points, m = plans[0].checkpoints, plans[0].cmdp.n_constraints
    shape = tuple(data.sizes[dim] for dim in ("learner", "instance", "hparams"))
    believed = full["slater_margin"]
    per_seed = (believed.shape[-1],) if estimates_margin(plans) else ()
    bound = np.full((*shape, *per_seed, len(points), len(sums)), np.nan)
    orders = np.full((2, *shape[:2]), np.nan)
    labels = data.hparams.values.tolist()
    for p, plan in enumerate(plans):
        analysis = plan.learner.analysis
        if analysis is None or plan.truth is None:
            continue
        problem = plan.problems[0]._replace(slater_margin=np.asarray(plan.truth.slater_margin))
        orders[:, p] = analysis.order_terms(problem, m, plan.truth.multiplier_norm)
        for h, choice in enumerate(plan.hparams):
            position = labels.index(choice.label)
            margin = believed[p, :, position] if per_seed else np.asarray(plan.problems[h].slater_margin)[:, None]
            allowed = _allowed(plan, h, margin, analysis)  # [points, sums, instances, seeds]
            for i, name in enumerate(analysis.sums):
                curves = np.moveaxis(allowed[:, i], 0, -1)
                bound[p, :, position, ..., sums.index(name)] = curves if per_seed else curves[:, 0]
    return data.assign(
        failures=((*curve, "event"), full["failures"], {"units": "episodes"}),
        slack=((*curve, "event"), full["slack"]),
        watched_sum=((*curve, "quantity"), full["watched"]),
        watched_bound=(
            ("learner", "instance", "hparams", *(["seed"] if per_seed else []), "episode", "quantity"),
            bound,
        ),
        regret_order_term=(("learner", "instance"), orders[0], {"long_name": "constant 1, logarithms dropped"}),
        violation_order_term=(("learner", "instance"), orders[1], {"long_name": "constant 1, logarithms dropped"}),
    ).assign_coords(event=events, quantity=sums)
