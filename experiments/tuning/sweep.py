"""Choosing the "tuned" presets: a random search with the same budget for every learner, on CMDPs reported nowhere else.

    python -m experiments.tuning.sweep                   # runs what is not stored yet, then prints the tables
    python -m experiments.tuning.sweep --table           # the tables from stored results
    python -m experiments.tuning.sweep --learner cpdpo   # one learner

Budget: 48 settings for each learner, drawn log-uniformly from `RANGES` by one generator, each run on the same 16
instances: random 5 x 5 x 3 CMDPs with 1 and with 2 constraints (keys 1000 and 1001, loose and tight), `hard` (share
0.6: multipliers large beside (L+1)/rho) and `random_episode_wise`. T = 10^5 and 2 seeds; the learners that solve a
linear program in every episode get the same settings and instances with T = 250 and 1 seed, which is what 48 settings
of them can have. Score: geometric mean over instances of strong regret + strong violation (of the worst constraint)
per episode, mean over seeds. See README.md for what was chosen.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import cpdpo_jax as cp
from cpdpo_jax.results.tables import format_table
from experiments import common
from experiments.common import Cell

STORE = Path("runs/tuning")
SETTINGS = 48
CONFIDENCE = {"transition_confidence": (1e-6, 1e-1), "payoff_confidence": (1e-6, 1e-1)}
DUAL = {"dual_rate": (0.1, 100), "dual_cap": (0.1, 1)}
RANGES: dict[str, dict[str, tuple[float, float]]] = {  # factors on the theory's constants
    "cpdpo": {
        "learning_rate": (1, 1000),
        "dual_cap": (0.1, 1),  # the loss scale follows
        "bonus_scale": (1e-4, 1),
        "exploration": (1e-3, 1),  # over sqrt(T)
        "confidence": (1e-6, 1e-1),  # all three logarithms
    },
    "optprimaldual": {"policy_rate": (1, 1000), **DUAL, **CONFIDENCE},
    "regularized_primal_dual": {"policy_rate": (1, 1000), **DUAL, "regularisation": (1e-3, 1), **CONFIDENCE},
    "optdual": {"dual_rate": (0.1, 100), **CONFIDENCE},
    "optcmdp": CONFIDENCE,
    "optcmdp_bonus": CONFIDENCE,
}


def environments() -> dict[str, dict[str, object]]:
    """By kind, one shape and four instances each. Two families in one batch are kept in a file."""
    STORE.mkdir(parents=True, exist_ok=True)
    found: dict[str, dict[str, object]] = {}
    for m in (1, 2):
        path = STORE / f"random_{m}.npz"
        if not path.exists():
            sizes = {"layers": 5, "states": 5, "actions": 3, "constraints": m, "instances": 2}
            loose = cp.envs.make("random", key=1000, tightness=0.5, **sizes)
            cp.save_cmdp(path, cp.stack([loose, cp.envs.make("random", key=1001, tightness=0.8, **sizes)]))
        found[f"random_{m}"] = {"name": str(path)}
    found["hard"] = {"name": "hard", "layers": 4, "states": 3, "share": 0.6, "key": 1005, "instances": 4}
    found["episode_wise"] = {"name": "random_episode_wise", "key": 1003, "instances": 4}
    return found


def drawn(learner: str) -> list[dict[str, float]]:
    """The factors of each setting."""
    rng = np.random.default_rng(17)
    low, high = (np.log([bounds[i] for bounds in RANGES[learner].values()]) for i in (0, 1))
    points = np.exp(low + (high - low) * rng.random((SETTINGS, len(low))))
    return [{name: float(f"{x:.2g}") for name, x in zip(RANGES[learner], row, strict=True)} for row in points]


def setting(learner: str, factors: dict[str, float], episodes: int) -> dict[str, object]:
    """A setting, as of `simulate`."""
    chosen: dict[str, object] = {name: f"x{value:g}" for name, value in factors.items()}
    if learner == "cpdpo":
        chosen["loss_scale"] = chosen["dual_cap"]
        chosen["exploration"] = factors["exploration"] / np.sqrt(episodes)
        confidence = chosen.pop("confidence")
        chosen |= {f"{of}_confidence": confidence for of in ("transition", "reward", "cost")}
    return {"preset": "theory", **chosen}


def length(learner: str) -> tuple[int, int]:
    """Episodes and seeds."""
    return (250, 1) if not cp.learners.get(learner).compiled else (100_000, 2)


def cells(learner: str) -> list[Cell]:
    """All settings on each kind of instance."""
    episodes, seeds = length(learner)
    settings = [setting(learner, factors, episodes) for factors in drawn(learner)]
    options = {"episodes": episodes, "seeds": seeds, "settings": settings, "checkpoints": 4}
    return [Cell(f"{learner}-{kind}", learner, environment, options) for kind, environment in environments().items()]


def table(learner: str, show: int = 8) -> str:
    """The best settings, with regret and violation per episode on each kind of instance."""
    episodes, _ = length(learner)
    results = common.load(STORE, cells(learner))
    ends = {}
    for metric in ("strong_regret", "strong_violation"):
        parts = []
        for result in results.values():
            end = result.metric(metric).isel(learner=0, episode=-1).mean("seed") / episodes
            parts.append(end.transpose("instance", "setting").values)
        ends[metric] = np.stack(parts)  # [kind, instance, setting]
    total = ends["strong_regret"] + ends["strong_violation"]
    score = np.exp(np.log(np.maximum(total, 1e-6)).mean(axis=(0, 1)))
    names = list(RANGES[learner])
    rows = [["score", *names, *(f"{name}: regret + violation" for name in environments())]]
    for i in np.argsort(score)[:show]:
        means = (f"{ends['strong_regret'][k, :, i].mean():.3f} + {ends['strong_violation'][k, :, i].mean():.3f}"
                 for k in range(len(total)))  # fmt: skip
        rows.append([f"{score[i]:.4f}", *(f"{drawn(learner)[i][name]:g}" for name in names), *means])
    return f"{learner} (median score {np.median(score):.3f}, worst {score.max():.3f})\n{format_table(rows)}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="only print the tables from stored results")
    parser.add_argument("--learner", nargs="+", choices=list(RANGES), default=list(RANGES))
    chosen = parser.parse_args()
    for learner in chosen.learner:
        if not chosen.table:
            common.run(STORE, cells(learner))
        print(table(learner), flush=True)


if __name__ == "__main__":
    main()
