"""Statistics over seeds: bootstrap intervals, growth exponents, paired comparisons, and their tables."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import xarray as xr

    from cpdpo_jax.results.result import Result

RESAMPLES = 4000
LEVEL = 0.95


def bootstrap_mean(values: np.ndarray, rng_seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """95 % percentile-bootstrap interval of the mean over the last axis: [..., seeds] -> (low [...], high [...]).

    Seeds are resampled whole, so points of one curve keep their dependence. One seed has no interval: NaN.
    """
    n = values.shape[-1]
    if n < 2:
        nothing = np.full(values.shape[:-1], np.nan)
        return nothing, nothing.copy()
    means = values @ _resampling_weights(n, rng_seed).T
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=-1)
    return low, high


def _resampling_weights(n: int, rng_seed: int) -> np.ndarray:
    """How much each of n seeds weighs in each bootstrap sample, [RESAMPLES, n]; rows sum to 1."""
    return np.random.default_rng(rng_seed).multinomial(n, np.full(n, 1 / n), size=RESAMPLES) / n


def growth_exponent(results: list[Result], metric: str) -> xr.Dataset:
    """See `Result.growth_exponent`. exponent, low, high [learner, instance, setting] and the steps between
    successive T, [..., step].
    """
    import xarray as xr

    along = len(results) == 1
    if along:
        curve = results[0].metric(metric).transpose("learner", "instance", "setting", "episode", "seed")
        times = curve.episode.values.astype(float)
        half = times >= np.sqrt(times[-1])
        times, samples = times[half], [curve.values[..., i, :] for i in np.flatnonzero(half)]
    else:
        results = sorted(results, key=lambda one: one.data.attrs["episodes"])
        times = np.array([float(one.data.attrs["episodes"]) for one in results])
        if len(set(times)) < len(times):
            raise ValueError(f"growth across runs needs different numbers of episodes; these have {times.tolist()}.")
        ends = [one.metric(metric).isel(episode=-1) for one in results]
        samples = [end.transpose("learner", "instance", "setting", "seed").values for end in ends]
        curve = ends[0]
    weights = [_resampling_weights(s.shape[-1], 0 if along else i) for i, s in enumerate(samples)]
    with np.errstate(divide="ignore", invalid="ignore"):
        log_mean = np.log(np.stack([s.mean(axis=-1) for s in samples], axis=-1))[..., None]  # [..., T, 1]
        log_boot = np.log(np.stack([s @ w.T for s, w in zip(samples, weights, strict=True)], axis=-2))  # [..., T, R]
    x = np.log(times)
    line = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    out = {}
    dims = ("learner", "instance", "setting")
    for name, slope in (
        ("exponent", lambda y: np.einsum("t,...tr->...r", line, y)),
        ("step_exponent", lambda y: np.diff(y, axis=-2) / np.diff(x)[:, None]),
    ):
        with np.errstate(invalid="ignore"):  # a metric of 0 has no logarithm: its slope is NaN
            low, high = np.quantile(slope(log_boot), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=-1)
            mean = slope(log_mean)[..., 0]
        of = dims if name == "exponent" else (*dims, "step")
        prefix = name.removesuffix("exponent")
        out |= {name: (of, mean), f"{prefix}low": (of, low), f"{prefix}high": (of, high)}
    coords = {dim: curve[dim].values for dim in dims}
    steps = [f"{a:g}-{b:g}" for a, b in itertools.pairwise(times)]
    return xr.Dataset(out, coords=coords | {"step": steps}, attrs={"metric": metric, "along_one_run": int(along)})


def summary_table(result: Result) -> str:
    """One row per learner, instance and setting; see `Result.summary`."""
    from cpdpo_jax.results.result import METRICS

    data = result.data
    episodes = int(data.episode[-1])
    rows = [["learner", "instance", "setting", "metric", "mean", "95 % interval", "median", "per episode"]]
    for at, label in _rows(data):
        for name in METRICS:
            values = result.metric(name).sel(at).isel(episode=-1).values
            values = values[np.isfinite(values)]
            if not len(values):
                rows.append([*label, name, "not reached", "", "", ""])
                continue
            low, high = bootstrap_mean(values)
            mean = values.mean()
            rows.append(
                [*label, name, f"{mean:.4g}", f"[{low:.4g}, {high:.4g}]", f"{np.median(values):.4g}",
                 f"{mean / episodes:.3g}"]
            )  # fmt: skip
    head = f"{episodes:,} episodes, {data.sizes['seed']} seeds" + (" (interrupted)" if result.interrupted else "")
    return head + "\n" + format_table(rows)


def comparison_table(result: Result, a: str, b: str) -> str:
    """See `Result.compare`."""
    from cpdpo_jax.results.result import METRICS

    known = [str(name) for name in result.data.learner.values]
    for name in (a, b):
        if name not in known:
            raise ValueError(f"there is no learner {name!r} in this result; it has {', '.join(known)}.")
    rows = [["instance", "setting", "metric", f"{a} - {b}", "95 % interval"]]
    for at, label in _rows(result.data.sel(learner=[a])):
        for name in METRICS:
            ends = result.metric(name).isel(episode=-1)
            paired = (ends.sel(at) - ends.sel(at | {"learner": b})).values
            low, high = bootstrap_mean(paired)
            rows.append([*label[1:], name, f"{paired.mean():.4g}", f"[{low:.4g}, {high:.4g}]"])
    return format_table(rows)


def monitor_table(result: Result) -> str:
    """See `Result.monitor_table`."""
    data = result.data
    if "failures" not in data:
        raise ValueError("this run was not watched; simulate with monitor=True.")
    rows = [["instance", "setting", "event", "seeds with a failure", "failing episodes", "least slack"]]
    last = data.isel(episode=-1)
    for at, label in _rows(data):
        for event in data.event.values:
            failures = last.failures.sel(at | {"event": event}).values
            slack = float(last.slack.sel(at | {"event": event}).min())
            seen = f"{int((failures > 0).sum())} of {failures.size} ({(failures > 0).mean():.3g})"
            rows.append([*label[1:], str(event), seen, f"{failures.mean():.4g} per seed", f"{slack:.3g}"])
    lines = [format_table(rows), ""]
    for i in range(data.sizes["instance"]):
        for kind in ("reward", "cost"):
            worst = float(last.width_sum.sel(kind=kind).isel(instance=i).max())
            bound = float(last.width_bound.sel(kind=kind).isel(instance=i))
            lines.append(
                f"instance {i}: sum of V({kind} width) at most {worst:.4g} over seeds, the lemma allows {bound:.4g}"
            )
        regret, violation = (
            float(result.metric(x).isel(instance=i, episode=-1).max()) for x in ("strong_regret", "strong_violation")
        )
        lines.append(
            f"instance {i}: strong regret at most {regret:.4g} over seeds; Theorem 1's order term (constant 1, "
            f"logarithms dropped) is {float(data.regret_order_term[i]):.4g}; strong violation at most {violation:.4g}, "
            f"Theorem 2's order term is {float(data.violation_order_term[i]):.4g}"
        )
    return "\n".join(lines)


def _rows(data: xr.Dataset):
    """Every (learner, instance, setting) of a result that was run: a selection and its labels."""
    for learner in data.learner.values:
        for i, instance in enumerate(data.instance.values):
            for setting in data.setting.values:
                at = {"learner": learner, "instance": instance, "setting": setting}
                if np.isfinite(data.strong_regret.sel(at).values).any():
                    yield at, [str(learner), f"{data.instance_name.values[i]} ({instance})", str(setting)]


def format_table(rows: list[list[str]]) -> str:
    """Columns of one width, the first row underlined."""
    widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])
