"""The distance of the bounds from the observed values, and the T at which the theory's constants begin to learn."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

import cpdpo_jax as cp
from cpdpo_jax.results.statistics import bootstrap_mean
from experiments import common, statistics
from experiments.common import Section
from experiments.statistics import format_mean
from experiments.theory import free, free_analysis, sweep

ALLOWED = {  # of the seeds
    "cpdpo": {"reward": sweep.DELTA, "cost": sweep.DELTA, "transition": 4 * sweep.DELTA},
    "cpd_oppo": dict.fromkeys(("reward", "cost", "transition"), sweep.DELTA),  # in all; the rest follows from these
}
BEGUN = 0.9  # of uniform play's regret plus violation per episode: below it learning has begun
KINDS = ("regret", "violation", "both")


def measured(result: cp.Result, scale: str) -> common.Values:
    """Of a watched run its events and bounds; of another, regret and violation at T, [hparams][instance][seed]."""
    if str(result.data.learner.values[0]).startswith(free.LEARNER.name):
        return free_analysis.measured(result)
    if "failures" not in result.data:
        return common.ends(result)
    data = result.data.isel(learner=0, instance=0, episode=-1)
    events = {
        event: [
            (common.rounded(of.failures.values), common.rounded(of.slack.min().values))
            for of in (data.sel(event=event).isel(hparams=position) for position in range(data.sizes["hparams"]))
        ]
        for event in map(str, data.event.values)
    }
    bounds = {name: [common.rounded(seen), bound] for name, (seen, bound) in _measured_bounds(result).items()}
    return {"episodes": int(data.episode), "events": events, "bounds": bounds}


def analyse(data: common.Data, scale: str) -> common.Analysis:
    """The events and bounds of each learner, the learning, and a figure."""
    watched = {learner: data[sweep.watched(scale, learner).name] for learner in sweep.LOGARITHMS}
    bounds = {
        learner: {name: (np.array(seen), bound) for name, (seen, bound) in of["bounds"].items()}
        for learner, of in watched.items()
    }
    shares = {(learner, m): _shares(data, scale, learner, m) for learner in watched for m in sweep.CONSTRAINTS[scale]}
    sections = [_events(learner, result) for learner, result in watched.items()]
    sections += [_bound_table(learner, watched[learner], bounds[learner]) for learner in watched]
    sections += [_learning(shares), *free_analysis.sections(data, scale)]
    return sections, {"theory": _figure(bounds, shares, scale)}


def _events(learner: str, of: common.Values) -> Section:
    rows = [["constants", "event", "seeds with a failure", "allowed", "failing episodes per seed", "least slack"]]
    for label, position in (("theory", 0), ("logarithms x 0.001", 1)):
        for event, found in of["events"].items():
            failures, slack = np.array(found[position][0]), found[position][1]
            allowed = f"{ALLOWED[learner][event]:g}" if event in ALLOWED[learner] and position == 0 else ""
            seen = f"{int((failures > 0).sum())} of {failures.size}"
            rows.append([label, event, seen, allowed, f"{failures.mean():.4g}", f"{slack:.3g}"])
    note = (
        f"{of['episodes']:,} episodes; the share of seeds in which an event fails even once is allowed to be delta. "
        "Inequalities are checked to a relative tolerance of 1e-5, which the slack includes."
    )
    return Section(f"{learner}_events", f"{learner}: events of the analysis", rows, note)


def _measured_bounds(result: cp.Result) -> dict[str, tuple[np.ndarray, float]]:
    """What was seen, [seed], and the bound on it; of the exact constants."""
    data = result.data.isel(learner=0, instance=0, hparams=0, episode=-1)
    names = (
        {f"{kind} width": f"sum of V({kind} width)" for kind in ("reward", "cost")}
        if str(result.data.learner.values[0]) == "cpdpo"
        else {"x": "sum of x"}
    )
    watched = {
        name: (data.watched_sum.sel(quantity=quantity).values, float(data.watched_bound.sel(quantity=quantity)))
        for quantity, name in names.items()
    }
    regret, violation = (statistics.final_values(result.data, f"strong_{kind}")[0] for kind in ("regret", "violation"))
    return watched | {
        "strong regret (order term)": (regret, float(data.regret_order_term)),
        "strong violation (order term)": (violation, float(data.violation_order_term)),
    }


def _bound_table(learner: str, of: common.Values, bounds: dict[str, tuple[np.ndarray, float]]) -> Section:
    rows = [["quantity", "mean", "largest over seeds", "bound", "largest / bound"]]
    for name, (seen, bound) in bounds.items():
        rows.append([name, format_mean(seen), f"{seen.max():.4g}", f"{bound:.4g}", f"{seen.max() / bound:.3g}"])
    note = "The theorems' bounds are order terms with constant 1 and without logarithms; the lemmas' are exact."
    return Section(f"{learner}_bounds", f"{learner}: bounds after {of['episodes']:,} episodes", rows, note)


def _shares(data: common.Data, scale: str, learner: str, m: int) -> dict[int, np.ndarray]:
    """T -> [kind, seed]: regret, violation and their sum per episode, as shares of uniform play's."""
    uniform = _per_episode(data[sweep.learning(scale, m, "uniform", 10).name], 10)
    runs = {t: _per_episode(data[sweep.learning(scale, m, learner, t).name], t) for t in sweep.TIMES[scale]}
    return {t: of / np.where(uniform > 1e-6, uniform, np.nan) for t, of in runs.items()}


def _per_episode(of: common.Values, episodes: int) -> np.ndarray:
    regret, violation = (np.array(of[f"strong_{kind}"][0][0]) / episodes for kind in ("regret", "violation"))
    return np.stack([regret, violation, regret + violation])


def _learning(shares: dict[tuple[str, int], dict[int, np.ndarray]]) -> Section:
    rows = [["learner", "constraints", "T", *(f"strong {kind}" for kind in KINDS)]]
    begun = []
    for (learner, m), by_time in shares.items():
        for t, of in by_time.items():
            rows.append([learner, str(m), f"{t:,}", *(format_mean(values) for values in of)])
        first = [t for t, of in by_time.items() if bootstrap_mean(of[2])[1] < BEGUN]
        when = f"at T = {first[0]:,}" if first else f"not up to T = {max(by_time):,}"
        begun.append(f"{learner}, {m} constraint(s): {when}")
    note = f"First T at which the whole interval lies below {BEGUN:g} of uniform play: {'; '.join(begun)}."
    return Section("learning", "the theory's constants per episode, as shares of uniform play's", rows, note)


def _figure(
    by_learner: dict[str, dict[str, tuple[np.ndarray, float]]],
    shares: dict[tuple[str, int], dict[int, np.ndarray]],
    scale: str,
) -> Figure:
    bounds = {f"{learner}: {name}": of for learner, some in by_learner.items() for name, of in some.items()}
    figure = Figure(figsize=(common.WIDE, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    counts = list(dict.fromkeys(m for _, m in shares))
    for (learner, m), by_time in shares.items():
        for k, kind in enumerate(KINDS[:2]):
            of = [values[k] for values in by_time.values()]
            mean = np.array([values.mean() for values in of])
            if np.isfinite(mean).all():
                error = np.abs(np.array([bootstrap_mean(values) for values in of]).T - mean)
                label = f"{learner}, {kind}, m = {m}"
                style = common.line_style(learner, 2 * counts.index(m) + k)
                left.errorbar(list(by_time), mean, yerr=error, label=label, capsize=2, **style)
    left.axhline(1, color="0.4", linewidth=0.8)
    left.set(ylabel="strong metric / uniform play's", title="the theory's constants")
    left.set_ylim(0, max(1.2, left.get_ylim()[1]))
    common.episode_ticks(left, sweep.TIMES[scale])
    shown = [max(seen.max() / bound, 1e-6) for seen, bound in bounds.values()]
    right.set_xscale("log")
    for y, (name, share) in enumerate(zip(bounds, shown, strict=True)):
        right.plot(share, y, **common.line_style(name.split(": ")[0]))
        right.annotate(f"{share:.2g}", (share, y), xytext=(0, 5), textcoords="offset points", fontsize=7, ha="center")
    right.set_xlim(min([0.1, *shown]) / 4, 4)
    right.set_ylim(-0.6, len(shown) - 0.4)
    right.axvline(1, color="0.2", linewidth=1)
    right.set_yticks(range(len(shown)), [name.replace(" (", "\n(") for name in bounds])
    right.invert_yaxis()
    right.grid(visible=False, axis="y")
    right.set(xlabel="largest over seeds / bound", title="bounds and what happens")
    common.legend(figure, left)
    return figure
