"""Comparisons of learners on common random numbers: paired differences, and ranks over environments."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cpdpo_jax.common.axes import AXES
from cpdpo_jax.common.text import column_format
from cpdpo_jax.results import units
from cpdpo_jax.results.copies import option_values
from cpdpo_jax.results.significance import sign_flip_p
from cpdpo_jax.results.statistics import METRICS, STRONG, at_end, bootstrap_mean, metric
from cpdpo_jax.results.tables import TextTable, labelled_runs

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr


def comparison_table(data: xr.Dataset, a: str, b: str) -> TextTable:
    """The table of two learners, or of the hparams of one learner; see `Result.compare`."""
    known = [str(name) for name in data.learner.values]
    for name in (a, b):
        if name not in known:
            raise ValueError(f"there is no learner {name!r} in this result; it has {', '.join(known)}.")
    differences = []
    for first, second in _pairs(data, [(a, b)]):
        name_of_instance = data.instance_name.sel(instance=first["instance"]).item()
        label = [f"{name_of_instance} ({first['instance']})", first["hparams"], second["hparams"]]
        differences += [([*label, name], paired_difference(data, name, first, second)) for name in METRICS]
    if not differences:
        raise ValueError(f"{a!r} and {b!r} share no instance and T; compare runs of the same instance and T.")
    shown = column_format([v for _, (d, _) in differences if len(d) for v in (d.mean(), *bootstrap_mean(d))])
    rows = [
        ["instance", f"hparams of {a}", f"hparams of {b}", "metric", f"{a} - {b}", "95 % interval", "seeds", "at T"]
    ]
    for label, (values, episode) in differences:
        if not len(values):
            rows.append([*label, "no common checkpoint", "", "0", ""])
            continue
        low, high = bootstrap_mean(values)
        rows.append([*label, shown(values.mean()), f"[{shown(low)}, {shown(high)}]", str(len(values)), f"{episode:,}"])
    kept = [c for c in range(len(rows[0])) if c != 2 or any(row[1] != row[2] for row in rows[1:])]
    if 2 not in kept:
        rows[0][1] = "hparams"
    return TextTable([[row[c] for c in kept] for row in rows], units.remark(data))


def run_hparams(data: xr.Dataset) -> dict[tuple[int, str], list[str]]:
    """The hparams that were run, by instance and learner."""
    found: dict[tuple[int, str], list[str]] = {}
    for at, _ in labelled_runs(data):
        found.setdefault((int(at["instance"]), str(at["learner"])), []).append(str(at["hparams"]))
    return found


def _hparams_pairs(
    data: xr.Dataset, run: dict[tuple[int, str], list[str]], instance: int, a: str, b: str
) -> list[tuple[str, str]]:
    """The pairs of hparams of two learners, or of one learner, to compare: those of the same name, or all if none is.

    Hparams of different T are not compared, because all metrics grow with T.
    """
    hparams_a, hparams_b = (run.get((int(instance), name), []) for name in (a, b))
    if a == b:
        pairs = list(itertools.combinations(hparams_a, 2))
    else:
        common = [(name, name) for name in hparams_a if name in hparams_b]
        pairs = common or list(itertools.product(hparams_a, hparams_b))
    if "T" not in data.coords:
        return pairs
    times = dict(zip(map(str, data.hparams.values), data["T"].values.tolist(), strict=True))
    return [(first, second) for first, second in pairs if times[first] == times[second]]


def paired_difference(
    data: xr.Dataset, name: str, first: dict[str, str], second: dict[str, str]
) -> tuple[np.ndarray, int]:
    """Differences [seeds] of a metric at the last checkpoint that all seeds reached, and that checkpoint."""
    curves = metric(data, name)
    paired = (curves.sel(first) - curves.sel(second)).transpose("episode", "seed").values
    paired = paired[:, np.isfinite(paired).any(axis=0)]  # seeds that both started
    reached = np.flatnonzero(np.isfinite(paired).all(axis=1)) if paired.size else np.zeros(0, int)
    if not len(reached):
        return np.zeros(0), 0
    return paired[reached[-1]], int(curves.episode.values[reached[-1]])


def pairs_frame(data: xr.Dataset, metrics: Sequence[str] = STRONG) -> pd.DataFrame:
    """Pairs of learners, and of the hparams of a learner, on each instance, with uncorrected p values.

    Learners are compared at hparams of the same name if they share any. `significance.with_holm` corrects p values.
    """
    import pandas as pd

    several, rows = data.sizes["hparams"] > 1, []
    learners = itertools.combinations_with_replacement(map(str, data.learner.values), 2)
    for first, second in _pairs(data, list(learners)):
        for name in metrics:
            values, episode = paired_difference(data, name, first, second)
            if not len(values):
                continue
            low, high = bootstrap_mean(values)
            deviation = values.std(ddof=1) if len(values) > 1 else np.nan
            effect = values.mean() / deviation if deviation > 0 else np.nan
            a, b = (_name(at, several) for at in (first, second))
            instance_name = str(data.instance_name.sel(instance=first["instance"]).item())
            rows.append(
                {"instance": int(first["instance"]), "instance_name": instance_name}
                | {"metric": name, "a": a, "b": b, "difference": values.mean(), "low": float(low), "high": float(high)}
                | {"effect_size": effect, "a_lower": float((values < 0).mean()), "p": sign_flip_p(values)}
                | {"seeds": len(values), "episode": episode}
                | _options(data, first, second)
            )
    if not rows:
        raise ValueError("no two learners or hparams share an instance and T; compare runs of the same instance and T.")
    return pd.DataFrame(rows)


def _pairs(data: xr.Dataset, learners: Sequence[tuple[str, str]]) -> Iterator[tuple[dict, dict]]:
    """The pairs of runs of these pairs of learners, as selections."""
    run = run_hparams(data)
    for instance in data.instance.values:
        for a, b in learners:
            for hparams_a, hparams_b in _hparams_pairs(data, run, instance, a, b):
                yield ({"learner": a, "instance": instance, "hparams": hparams_a},
                       {"learner": b, "instance": instance, "hparams": hparams_b})  # fmt: skip


def _options(data: xr.Dataset, first: dict, second: dict) -> dict[str, float]:
    """rho, delta and safety of both, if the data set has several values."""
    found = {side: option_values(data, at["hparams"]) for side, at in (("a", first), ("b", second))}
    return {f"{side}_{name}": found[side][name] for name in AXES if name in data.coords for side in found}


def _name(at: dict, several: bool) -> str:
    """The learner, with its hparams if there are several."""
    return f"{at['learner']}, {at['hparams']}" if several else str(at["learner"])


def pairs_table(frame: pd.DataFrame, head: str = "", note: bool = True) -> TextTable:
    """A frame of `significance.with_holm` as text."""
    kinds = {name: column_format(part[["difference", "low", "high"]].to_numpy().ravel())
             for name, part in frame.groupby("metric")}  # fmt: skip
    several = frame.instance.nunique() > 1
    names = ["metric", "a", "b", "a - b", "95 % interval", "effect size", "a lower in", "p (Holm)", "at T"]
    rows = [["instance"] * several + names]
    for row in frame.to_dict("records"):
        shown = kinds[row["metric"]]
        interval = f"[{shown(row['low'])}, {shown(row['high'])}]"
        numbers = [shown(row["difference"]), interval, _effect(row["effect_size"]), f"{row['a_lower']:.0%}"]
        instance = [f"{row['instance_name']} ({row['instance']})"] * several
        rows.append([*instance, row["metric"], row["a"], row["b"], *numbers, _p(row["p_holm"]), f"{row['episode']:,}"])
    return TextTable(rows, head, [explanation(len(frame))] if note else ())


def explanation(n: int) -> str:
    """The explanation of the columns of `pairs_table`, for a correction for n comparisons."""
    return (
        "effect size: mean / standard deviation of the paired differences; p: sign-flip test over seeds, with Holm's "
        f"correction for {n} comparisons"
    )


def _effect(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "-"


def _p(value: float) -> str:
    return "-" if not math.isfinite(value) else "< 0.001" if value < 1e-3 else f"{value:.3f}"


def rank_frame(runs: Sequence[tuple[str, xr.Dataset]], metrics: Sequence[str] = STRONG) -> pd.DataFrame:
    """The mean rank of each learner over environments and instances; rank 1 has the lowest mean, ties share ranks.

    Learners (and hparams) that were not run on all of them are left out. Columns: environments (their number), and for
    each metric the mean rank and the number of environments in which the learner was first.
    """
    import pandas as pd
    from scipy.stats import rankdata

    means: dict[str, list[dict[str, float]]] = {name: [] for name in metrics}
    for _, data in runs:
        several = data.sizes["hparams"] > 1
        for name in metrics:
            ends = at_end(data, name).mean("seed", skipna=True)
            for instance in data.instance.values:
                by_learner: dict[str, float] = {}
                for at, _ in labelled_runs(data):
                    if at["instance"] == instance:
                        by_learner[_name(at, several)] = float(ends.sel(at))
                means[name].append(by_learner)
    labels = dict.fromkeys(label for by_learner in means[metrics[0]] for label in by_learner)
    tables = [by_learner for tables in means.values() for by_learner in tables]
    complete = [label for label in labels if all(np.isfinite(table.get(label, np.nan)) for table in tables)]
    if len(complete) < 2:
        raise ValueError("fewer than two learners were run on all environments; give runs that share learners.")
    columns: dict[str, Any] = {"learner": complete, "environments": len(means[metrics[0]])}
    for name in metrics:
        ranks = np.array([rankdata([by_learner[label] for label in complete]) for by_learner in means[name]])
        columns[f"{name}_rank"] = ranks.mean(axis=0)
        columns[f"{name}_first"] = (ranks == ranks.min(axis=1, keepdims=True)).sum(axis=0)
    frame = pd.DataFrame(columns)
    order = frame[[f"{name}_rank" for name in metrics]].mean(axis=1).sort_values(kind="stable").index
    return frame.loc[order].reset_index(drop=True)


def rank_table(frame: pd.DataFrame) -> TextTable:
    """A frame of `rank_frame` as text."""
    names = [column.removesuffix("_rank") for column in frame if str(column).endswith("_rank")]
    rows = [["learner", *(f"{kind} {name.replace('_', ' ')}" for name in names for kind in ("mean rank", "first by"))]]
    for row in frame.to_dict("records"):
        cells = [cell for name in names for cell in (f"{row[f'{name}_rank']:.2f}", str(row[f"{name}_first"]))]
        rows.append([row["learner"], *cells])
    n = int(frame.environments.iloc[0])
    return TextTable(rows, f"ranks over {n} environments (pairs of instance and T); rank 1 has the lowest mean")
