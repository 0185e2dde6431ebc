"""Tables of CPD-OPPO with a learnt cap: events, sums against Z, caps with exact estimates and of the tuned preset."""

from __future__ import annotations

import math

import numpy as np

import cpdpo_jax as cp
from cpdpo_jax.exact.optimum import least_multiplier_norm
from experiments import common
from experiments.common import Section
from experiments.statistics import format_mean
from experiments.theory import free


def measured(result: cp.Result) -> common.Values:
    """Of a watched run its events and sums; of another the caps in the last episode, [hparams][instance][seed]."""
    if "failures" not in result.data:
        last = result.data.isel(learner=0, episode=-1)
        caps = np.minimum(last.hyper_first_cap * 2.0 ** (last.epochs - 1), last.hyper_largest_cap)
        return {
            name: common.rounded(of.transpose("hparams", "instance", "seed").values)
            for name, of in {"cap": caps, "phases": last.epochs}.items()
        } | {"episodes": int(last.episode)}
    last = result.data.isel(learner=0, instance=0, episode=-1)
    failures = last.failures.transpose("hparams", "event", "seed").values
    return {
        "episodes": int(last.episode),
        "events": list(map(str, last.event.values)),
        "failed": (failures > 0).sum(axis=2).tolist(),
        "slack": common.rounded(last.slack.transpose("hparams", "event", "seed").min("seed").values),
        "sums": {name: common.rounded(last.watched_sum.sel(quantity=name).values) for name in ("x + e", "Z")},
        "phases": common.rounded(last.epochs.transpose("hparams", "seed").max("seed").values),
    }


def sections(data: common.Data, scale: str) -> list[Section]:
    """Four tables."""
    return [_events(data, scale), _sums(data, scale), _exact(data, scale), _tuned(data, scale)]


def _events(data: common.Data, scale: str) -> Section:
    """Over all environments, since every one of them may fail in delta of the seeds."""
    runs = [data[free.watched(scale, name).name] for name in free.environments(scale, free.WATCHED)]
    total = free.SIZES[scale][1] * len(runs)
    rows = [["event", *(f"{form}: seeds with a failure" for form in free.FORMS), "least slack (forms B, R)"]]
    for k, event in enumerate(runs[0]["events"]):
        failed = [sum(of["failed"][h][k] for of in runs) for h in range(len(free.FORMS))]
        found = [of["slack"][h][k] for of in runs for h in range(2) if of["slack"][h][k] is not None]
        rows.append([event, *(f"{seeds} of {total}" for seeds in failed), f"{min(found):.3g}" if found else ""])
    names = ", ".join(free.environments(scale, free.WATCHED))
    note = (
        f"{runs[0]['episodes']:,} episodes, {free.SIZES[scale][1]} seeds each on {names}; delta = {free.DELTA:g}: all "
        "events together may fail in that share of the seeds of an environment. `cap` has no slack if no cap doubles."
    )
    return Section("free_events", "cpd_oppo_free: events of the analysis", rows, note)


def _sums(data: common.Data, scale: str) -> Section:
    rows = [["environment", "form", "sum of x + e", "sum of Z", "largest ratio", "most phases"]]
    for name in free.environments(scale, free.WATCHED):
        of = data[free.watched(scale, name).name]
        for h, form in enumerate(list(free.FORMS)[:2]):
            both, z = (np.array(of["sums"][quantity][h]) for quantity in ("x + e", "Z"))
            ratio, phases = f"{(both / z).max():.3g}", f"{of['phases'][h]:g}"
            rows.append([name, form, format_mean(both), format_mean(z), ratio, phases])
    note = f"Means with 95 % intervals and the largest ratio over {free.SIZES[scale][1]} seeds, the theory's constants."
    return Section("free_sums", "cpd_oppo_free: x + e against Z", rows, note)


def _exact(data: common.Data, scale: str) -> Section:
    starts = list(free.STARTS)
    columns = [f"from {start}: {rule}" for start in starts for rule in free.RULES]
    rows = [["instance", "Lambda", *columns, "most phases"]]
    for name in free.environments(scale, free.EXACT):
        of, norm = data[free.exact(scale, name).name], free.norm(name)
        caps = [f"{cap[0][0] / norm:.3g}" for cap in of["cap"]]
        rows.append([name, f"{norm:.3g}", *caps, f"{max(np.ravel(of['phases'])):g}"])
    most = 1 + math.ceil(math.log2(2 / free.STARTS[starts[0]]))
    note = (
        f"Final cap / Lambda after {free.SIZES[scale][2]:,} episodes with the theory's rates and without widths, from "
        f"Lambda/8 and {free.STARTS[starts[1]]:g} Lambda. The theorem, for forms B and R: from Lambda/8 at most {most} "
        "phases and a cap of at most 4 Lambda; a cap from 2 Lambda on is never doubled."
    )
    return Section("free_exact", "cpd_oppo_free with exact estimates: final cap / Lambda", rows, note)


def _tuned(data: common.Data, scale: str) -> Section:
    rows = [["environment", "Lambda", "least final cap", "median", "largest", "median / Lambda"]]
    for name, environment in free.environments(scale, free.TUNED).items():
        of, cmdp = data[free.tuned(scale, name).name], free.instance(environment)
        norm, caps = float(least_multiplier_norm(cmdp, cp.solve(cmdp))[0]), np.array(of["cap"])
        shown = (norm, caps.min(), np.median(caps), caps.max(), np.median(caps) / norm)
        rows.append([name, *(f"{value:.3g}" for value in shown)])
    episodes, seeds = free.SIZES[scale][3:]
    note = f"T = {episodes:,}, {seeds} seeds. The rows random_2000 to random_2005 are the held-out instances."
    return Section("free_tuned", "cpd_oppo_free, tuned: final caps", rows, note)
