"""Does sqrt(T) show? Strong regret and violation of CPD-PO across runs of T = 10^4, 10^5, 10^6, each with its own eta.

    python experiments/growth/run.py                     # runs what is not stored yet, then table and figures
    python experiments/growth/run.py --analysis          # from stored results
    python experiments/growth/run.py --largest 7         # up to T = 10^7

Claim tested: Theorems 1 and 2, order sqrt(T), with the "tuned" preset on two random CMDPs (5 layers x 5 states x 3
actions, rho = 0.5, 1 and 2 binding constraints; not those of the tuning sweep), 64 seeds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl

import cpdpo_jax as cp
from cpdpo_jax import metrics, plots

STORE = Path("runs/growth")
SIZES = {"layers": 5, "states": 5, "actions": 3, "rho": 0.5, "key": 1}


def path(constraints: int, power: int) -> Path:
    return STORE / f"constraints_{constraints}_T_1e{power}.nc"


def run(constraints: int, power: int, seeds: int) -> None:
    cmdp = cp.envs.make("random", constraints=constraints, **SIZES)
    print(f"{constraints} constraint(s), T = 1e{power}", flush=True)
    cp.simulate("cpdpo", cmdp, episodes=10**power, seeds=seeds).save(path(constraints, power))


def analysis(constraints: int, powers: list[int]) -> str:
    results = [cp.Result.load(path(constraints, power)) for power in powers]
    rows = [["T", "metric", "mean", "95 % interval", "per episode", "exponent from the T before", "95 % interval"]]
    for name in ("strong_regret", "strong_violation", "weak_regret", "weak_violation"):
        fit = results[0].growth_exponent(*results[1:], metric=name)
        for i, (power, result) in enumerate(zip(powers, results, strict=True)):
            values = result.metric(name).isel(episode=-1).values.ravel()
            low, high = metrics.bootstrap_mean(values)
            step = ["", ""]
            if i:
                at = {"learner": 0, "instance": 0, "setting": 0, "step": i - 1}
                bounds = (float(fit[key].isel(at)) for key in ("step_low", "step_high"))
                step = [f"{float(fit.step_exponent.isel(at)):.3f}", "[{:.3f}, {:.3f}]".format(*bounds)]
            mean = values.mean()
            cells = [f"{mean:.5g}", f"[{low:.5g}, {high:.5g}]", f"{mean / 10**power:.3g}"]
            rows.append([f"1e{power}", name, *cells, *step])
    figure = plots.growth(results)
    for suffix in ("png", "pdf"):
        figure.savefig(STORE / f"growth_{constraints}.{suffix}", dpi=150)
    instance = cp.envs.make("random", constraints=constraints, **SIZES)
    return f"{instance.describe()}\n\n{metrics.format_table(rows)}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--analysis", action="store_true", help="only the table and the figures, from stored results")
    parser.add_argument("--largest", type=int, default=6, help="log10 of the largest T (default: %(default)s)")
    parser.add_argument("--constraints", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seeds", type=int, default=64)
    chosen = parser.parse_args()
    mpl.use("Agg")
    STORE.mkdir(parents=True, exist_ok=True)
    powers = list(range(4, chosen.largest + 1))
    for constraints in chosen.constraints:
        for power in powers:
            if not chosen.analysis and not path(constraints, power).exists():
                run(constraints, power, chosen.seeds)
        print(analysis(constraints, powers))


if __name__ == "__main__":
    main()
