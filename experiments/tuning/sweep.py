"""Choosing the "tuned" preset of CPD-PO: a grid of multipliers on random CMDPs that no other experiment reports on.

    python experiments/tuning/sweep.py            # runs what is not stored yet, then prints the table
    python experiments/tuning/sweep.py --table    # the table from stored results

Instances: `random`, 5 layers x 5 states x 3 actions, keys 1000 (thresholds halfway) and 1001 (tight), two of each,
with 1 and with 2 constraints. Score: geometric mean over instances of strong regret + strong violation (of the worst
constraint) at T, mean over seeds. The grid is around the best of a first, coarser one (learning rate x1..x300, bonus
0.001..0.1, exploration 0.001..1/sqrt(T), confidence 0.001 and 0.01, dual cap x0.03..x1); see README.md.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import numpy as np

import cpdpo_jax as cp
from cpdpo_jax.metrics import format_table

EPISODES, SEEDS = 100_000, 4
RATES = ("x10", "x30", "x100")
CAPS = ("x0.1", "x0.15", "x0.2", "x0.3")
CONFIDENCES = (0.0003, 0.001)
STORE = Path("runs/tuning")


def grid() -> list[cp.settings.Hparams]:
    """Settings over the theory's constants; the loss scale follows the cap, 2 m cap."""
    return [
        {
            "preset": "theory",
            "learning_rate": rate,
            "dual_cap": cap,
            "loss_scale": cap,
            "bonus_scale": 0.01,
            "exploration": 0.01 / np.sqrt(EPISODES),
            "transition_confidence": confidence,
            "reward_confidence": confidence,
            "cost_confidence": confidence,
        }
        for rate, cap, confidence in itertools.product(RATES, CAPS, CONFIDENCES)
    ]


def instances(constraints: int) -> cp.CMDP:
    sizes = {"layers": 5, "states": 5, "actions": 3, "constraints": constraints, "instances": 2}
    return cp.stack(
        [
            cp.envs.make("random", key=1000, tightness=0.5, **sizes),
            cp.envs.make("random", key=1001, tightness=0.8, **sizes),
        ]
    )


def table() -> str:
    results = [cp.Result.load(STORE / f"constraints_{m}.nc") for m in (1, 2)]
    ends = {
        name: np.concatenate(
            [r.metric(name).isel(learner=0, episode=-1).mean("seed").transpose("instance", "setting") for r in results]
        )
        for name in ("strong_regret", "strong_violation")
    }
    score = np.exp(np.log(ends["strong_regret"] + ends["strong_violation"]).mean(axis=0))
    rows = [["score", "learning rate", "dual cap", "confidence", "strong regret by instance", "strong violation"]]
    for i in np.argsort(score):
        rate, cap, confidence = list(itertools.product(RATES, CAPS, CONFIDENCES))[i]
        curves = [" ".join(f"{v:.0f}" for v in ends[name][:, i]) for name in ends]
        rows.append([f"{score[i]:.0f}", rate, cap, f"{confidence:g}", *curves])
    return format_table(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="only print the table from stored results")
    chosen = parser.parse_args()
    STORE.mkdir(parents=True, exist_ok=True)
    for m in (1, 2):
        path = STORE / f"constraints_{m}.nc"
        if not chosen.table and not path.exists():
            hparams: list = grid()
            cp.simulate("cpdpo", instances(m), episodes=EPISODES, seeds=SEEDS, hparams=hparams, checkpoints=10).save(
                path
            )
    print(table())


if __name__ == "__main__":
    main()
