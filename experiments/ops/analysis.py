"""Seeds in which the mixture of S-OPS violates a constraint, and the growth of both metrics of BV-OPS."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

import cpdpo_jax as cp
from experiments import common, statistics
from experiments.common import Section
from experiments.ops import sweep
from experiments.statistics import format_interval, format_mean

METRICS = ("strong_regret", "strong_violation")


def measured(result: cp.Result, scale: str) -> common.Values:
    """Both metrics at T, and of S-OPS the episodes in which pi_b was played, [seed]."""
    values = common.ends(result, scale)
    if "infeasible" in result.data:
        values["fallbacks"] = common.rounded(result.data.infeasible.isel(episode=-1).values.ravel())
    return values


def analyse(data: common.Data, scale: str) -> common.Analysis:
    """Two tables and a figure."""
    return [_safe(data, scale), _growth(data, scale)], {"ops": _figure(data, scale)}


def _safe(data: common.Data, scale: str) -> Section:
    rows = [["layers x states x actions", "T", "rho", "seeds with a violation", "strong regret", "pi_b played"]]
    for name, of in sweep.SAFE[scale].items():
        found = data[sweep.safe(scale, name).name]
        regret, violation = (np.ravel(found[metric]) for metric in METRICS)
        share = f"{np.mean(found['fallbacks']) / of.episodes:.0%}"
        seeds = f"{int((violation > 0).sum())} of {violation.size}"
        rows.append([name, f"{of.episodes:,}", f"{np.ravel(found['rho'])[0]:.3g}", seeds, format_mean(regret), share])
    note = (
        "The theory's constants, delta = 0.05. A violation: the mixture of pi_b and the learnt policy, before a policy "
        "is drawn, violates a constraint in any episode. pi_b played: the share of episodes."
    )
    return Section("safe", "S-OPS: violations of the mixture", rows, note)


def _growth(data: common.Data, scale: str) -> Section:
    times, keys = sweep.TIMES[scale], sweep.KEYS[scale]
    rows = [["key", "metric", *(f"T = {t:,}" for t in times), "exponent"]]
    for metric in METRICS:
        for key in keys:
            ends = _ends(data, scale, key, metric)
            slope = statistics.over_instances([end[None] for end in ends], statistics.slope(times))
            rows.append([str(key), metric.replace("_", " "), *map(format_mean, ends), format_interval(*slope)])
    note = (
        f"Tuned preset, random 3 x 3 x 2; means over {sweep.SEEDS[scale]} seeds, and the exponent of T over all T, "
        "with 95 % bootstrap intervals over seeds. Each T is a separate run with its own rates."
    )
    return Section("growth", "BV-OPS: growth with T", rows, note)


def _ends(data: common.Data, scale: str, key: int, metric: str) -> list[np.ndarray]:
    return [np.ravel(data[sweep.growth(scale, key, t).name][metric]) for t in sweep.TIMES[scale]]


def _figure(data: common.Data, scale: str) -> Figure:
    times = sweep.TIMES[scale]
    figure = Figure(figsize=(common.WIDE, 2.7), layout="constrained")
    for axis, metric in zip(figure.subplots(1, 2), METRICS, strict=True):
        for i, key in enumerate(sweep.KEYS[scale]):
            means = [max(float(end.mean()), 1e-3) for end in _ends(data, scale, key, metric)]
            axis.plot(times, means, label=f"bv_ops, key {key}", **common.line_style("bv_ops", i))
        axis.set(yscale="log", title=metric.replace("_", " "))
        common.episode_ticks(axis, times)
    common.legend(figure, figure.axes[0])
    return figure
