"""Choosing the "tuned" presets: a random search with the same budget for every learner, on CMDPs reported nowhere else.

    python -m experiments.tuning.sweep                   # runs what is not stored yet, then prints the tables
    python -m experiments.tuning.sweep --table           # the tables from stored results
    python -m experiments.tuning.sweep --learner cpdpo   # one learner

Budget, the same for every learner: 48 choices drawn log-uniformly from `RANGES` by one generator, each run on the same
instances, two of each kind of `KINDS`; T = 10^4 and 16 seeds. The best 6 are run again with T = 10^5, with the earlier
preset if there is one (the ranges are wide and the draws few: a rival must not lose by that), and the best of these is
chosen. The learners that solve a linear program in every episode get the same choices and instances with T = 250 and 1
seed, and no second round; `ghosh`, for one constraint and 26 times as expensive, gets the kinds with one and 4
seeds. Learners that need a Slater point do without `least_cost` and `fixed_cost`. `cpd_oppo` spends half of its choices
on the fixed rate and half on the range-adaptive one, `cpd_oppo_free` half on each form of Z(n). No cap is tried below
0.4 (L+1)/rho: the environments here have multipliers up to 0.43.
Score: of strong regret + strong violation (of the worst constraint) per episode, the mean over seeds and the mean of
the worst quarter of the seeds, half each, so that a choice that gets stuck in a few seeds is penalised; then the
geometric mean over instances. README.md lists the chosen presets.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import cpdpo_jax as cp
from cpdpo_jax.exact.lp import evaluate, plan
from cpdpo_jax.results.tables import format_table
from experiments import common
from experiments.common import Cell

STORE = Path("runs/tuning")
CHOICES = 48
FINALISTS = 6
EPISODES = (10**4, 10**5)  # of the first and of the second round
SEEDS = 16
FEWER = {"ghosh": 4}  # seeds
CONFIDENCE: dict[str, tuple[float, float]] = {"transition_confidence": (1e-8, 1), "payoff_confidence": (1e-7, 1)}
SEARCH: dict[str, tuple[float, float]] = {"policy_rate": (0.3, 100), "exploration": (1e-3, 3), **CONFIDENCE}
DUAL: dict[str, tuple[float, float]] = {
    "dual_rate": (0.1, 100),
    "dual_cap": (0.25, 1),
}  # of 2L/rho: from 0.4 (L+1)/rho on
RANGES: dict[str, dict[str, tuple[float, float]]] = {  # factors on the theory's constants, but for `ABSOLUTE`
    "cpd_oppo": {"policy_rate": (3, 1000), "dual_cap": (0.4, 1), **CONFIDENCE},
    "cpd_oppo_free": {
        "rate_scale": (1, 100),
        "rate_delay": (100, 1e5),  # episodes
        "first_cap": (0.3, 10),
        "bound_scale": (0.03, 3),
        "transition_confidence": (1e-8, 0.1),
        "payoff_confidence": (1e-4, 1),  # earlier searches: with narrower widths, some seeds of `least_cost` get stuck
    },
    "optprimaldual": {"policy_rate": (1, 1000), **DUAL, **CONFIDENCE},
    "ghosh": {"policy_rate": (1, 1000), **CONFIDENCE},
    "uopt_rpgpd": {"policy_rate": (0.01, 100), "dual_rate": (0.1, 100), "regularisation": (1e-3, 3), **CONFIDENCE},
    "cpdpo": {
        "learning_rate": (1, 1000),
        "dual_cap": (0.4, 1),  # the loss scale follows
        "bonus_scale": (1e-4, 1),
        "exploration": (1e-3, 1),  # over sqrt(T)
        "confidence": (1e-6, 1),  # all three logarithms
    },
    "regularized_primal_dual": {"policy_rate": (1, 1000), **DUAL, "regularisation": (1e-3, 1), **CONFIDENCE},
    "optpess_primaldual": {"dual_rate": (0.1, 100), "tightening": (1e-2, 10), **CONFIDENCE},
    "triple_q": {
        "learning_offset": (0.1, 10),
        "dual_rate": (0.1, 100),
        "frame_length": (0.1, 10),
        "tightening": (1e-2, 1),
        "frame_bonus": (1e-2, 1),
        "transition_confidence": (1e-8, 1),
    },
    "optdual": {"dual_rate": (0.03, 100), **CONFIDENCE},
    "optcmdp": CONFIDENCE,
    "optcmdp_bonus": CONFIDENCE,
    "bv_ops": SEARCH,
    "s_ops": SEARCH,
}
BEFORE: dict[str, tuple[float, ...]] = {  # presets of an earlier search, in the order of `RANGES`
    "cpd_oppo": (32, 0.6, 1.2e-5, 5e-7),  # fixed rate
    "cpd_oppo_free": (8, 1e4, 3, 0.31, 1e-5, 2e-4),  # form R
    "optprimaldual": (110, 12, 0.26, 6e-8, 1.5e-4),
    "uopt_rpgpd": (0.13, 5, 0.13, 1e-8, 1.2e-6),
    "regularized_primal_dual": (60, 13, 0.54, 0.07, 5e-7, 4.5e-5),
    "cpdpo": (10, 0.5, 0.003, 0.05, 2e-4),
    "optpess_primaldual": (0.13, 4.3, 1.3e-5, 0.12),
    "triple_q": (0.6, 0.34, 0.34, 0.022, 0.06, 1.6e-8),
    "optdual": (0.4, 6e-5, 0.02),
    "ghosh": (30, 1e-6, 1e-2),
}
DRAWN: dict[str, dict[str, object]] = {
    "hard": {"name": "hard", "layers": 4, "states": 3, "share": 0.6, "key": 1005, "instances": 2},
    "episode_wise": {"name": "random_episode_wise", "key": 1003, "instances": 2},
}
KINDS: dict[str, tuple[str, ...]] = {  # by group: one shape, one batch; two instances of each kind
    "constraints_1": ("random_1", "small_rho", "resource", "least_cost"),
    "constraints_2": ("random_2", "fixed_cost"),
    **{name: (name,) for name in DRAWN},
}
GUARD = {"guarded": 1, "largest_cap": 1024}  # against a cap that grows for ever, in all choices for `cpd_oppo_free`
# The papers' tightening and frame bonus exceed H at any T that can be run: numbers in their place.
ABSOLUTE = {"tightening", "frame_bonus", "adaptive_rate", "rate_delay", "realised", *GUARD}
ADAPTIVE = 0.1  # the range-adaptive rate is tried with this times the factors of the fixed one: ranges are smaller


def resource(key: int) -> cp.CMDP:
    """Action 0 is free, the others cost and pay about in proportion: both rho and the multiplier are large."""
    rng = np.random.default_rng(key)
    transition, cost = rng.dirichlet(np.ones(5), size=(4, 5, 3)), rng.uniform(0.4, 1, (5, 5, 3))
    reward = np.clip(cost * rng.uniform(0.6, 1, (5, 5, 1)) + rng.uniform(-0.1, 0.1, cost.shape), 0, 1)
    cost[:, :, 0], reward[:, :, 0] = 0, rng.uniform(0, 0.1, (5, 5))
    _, greedy = plan(transition, reward, np.ones(cost.shape, bool))
    threshold = 0.6 * evaluate(transition, greedy, cost[None])
    return cp.make_cmdp(transition, reward, cost[None], threshold, name=f"resource(key={key})")


def instances(kind: str) -> list[cp.CMDP]:
    """The two instances of a kind that is kept in a file."""
    make, sizes = cp.envs.make, {"layers": 5, "states": 5, "actions": 3}
    if kind in ("random_1", "random_2"):
        sizes["constraints"] = int(kind[-1])
        return [make("random", key=key, tightness=x, **sizes) for key, x in ((1000, 0.5), (1001, 0.8))]
    if kind == "resource":
        return [resource(1006), resource(1007)]
    if kind == "small_rho":
        return [make("small_rho", key=1008, rhos=[0.3, 0.03], **sizes)]
    return [make(kind, key=1009, instances=2, **sizes)]


def environments(learner: str) -> dict[str, dict[str, object]]:
    """Environments by group; kinds of the same shape are one batch, stored in a file."""
    STORE.mkdir(parents=True, exist_ok=True)
    tables: dict[str, dict[str, object]] = {}
    for group, kinds in groups(learner).items():
        if group in DRAWN:
            tables[group] = DRAWN[group]
            continue
        path = STORE / f"{'-'.join(kinds)}.npz"
        if not path.exists():
            cp.save_cmdp(path, cp.stack([cmdp for kind in kinds for cmdp in instances(kind)]))
        tables[group] = {"name": str(path)}
    return tables


def groups(learner: str) -> dict[str, tuple[str, ...]]:
    """The kinds of each group that the learner can be run on."""
    entry = cp.learners.get(learner)
    refused = {"least_cost", "fixed_cost"} if entry.needs_slater else set()
    return {
        group: tuple(kind for kind in kinds if kind not in refused)
        for group, kinds in KINDS.items()
        if group != "constraints_2" or entry.most_constraints is None
    }


def drawn(learner: str) -> list[dict[str, float]]:
    """The factors of each choice; last, if there is one, the earlier preset."""
    rng = np.random.default_rng(17)
    low, high = (np.log([bounds[i] for bounds in RANGES[learner].values()]) for i in (0, 1))
    points = np.exp(low + (high - low) * rng.random((CHOICES, len(low))))
    choices = [{name: float(f"{x:.2g}") for name, x in zip(RANGES[learner], row, strict=True)} for row in points]
    if learner == "cpd_oppo":
        for i, choice in enumerate(choices):
            choice["adaptive_rate"] = i % 2
            choice["policy_rate"] *= ADAPTIVE if i % 2 else 1
    if learner == "cpd_oppo_free":
        for i, choice in enumerate(choices):
            choice |= {"realised": i % 2, **GUARD}
    if learner in BEFORE:
        choices.append(dict(zip(RANGES[learner], BEFORE[learner], strict=True)))
        if learner == "cpd_oppo":
            choices[-1]["adaptive_rate"] = 0
        if learner == "cpd_oppo_free":
            choices[-1] |= {"realised": 1, **GUARD}
    return choices


def hparams_of(learner: str, factors: dict[str, float], episodes: int) -> dict[str, object]:
    """One choice, as `hparams` of `simulate`."""
    chosen: dict[str, object] = {name: value if name in ABSOLUTE else f"x{value:g}" for name, value in factors.items()}
    if learner == "cpdpo":
        chosen["loss_scale"] = chosen["dual_cap"]
        chosen["exploration"] = factors["exploration"] / np.sqrt(episodes)
        confidence = chosen.pop("confidence")
        chosen |= {f"{quantity}_confidence": confidence for quantity in ("transition", "reward", "cost")}
    return {"preset": "theory", **chosen}


def rounds(learner: str) -> list[tuple[int, int]]:
    """Episodes and seeds of each round."""
    seeds = FEWER.get(learner, SEEDS)
    return [(episodes, seeds) for episodes in EPISODES] if cp.learners.get(learner).compiled else [(250, 1)]


def cells(learner: str, number: int, which: list[int]) -> list[Cell]:
    """The choices `which` on each group of instances, in round `number`."""
    episodes, seeds = rounds(learner)[number]
    factors = drawn(learner)
    hparams = [hparams_of(learner, factors[i], episodes) for i in which]
    options = {"episodes": episodes, "seeds": seeds, "hparams": hparams, "checkpoints": 4}
    before = "-before" if which == [CHOICES] else ""
    return [
        Cell(f"{learner}-{group}-{episodes}{before}", learner, environment, options)
        for group, environment in environments(learner).items()
    ]


def with_tail(values: np.ndarray) -> np.ndarray:
    """The mean over seeds (last axis) and the mean of their worst quarter, half each."""
    worst = np.sort(values, axis=-1)[..., -max(1, values.shape[-1] // 4) :]
    return (values.mean(axis=-1) + worst.mean(axis=-1)) / 2


def scores(learner: str, number: int, which: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """The score of each choice, and regret and violation per episode, [metric, kind, instance, hparams, seed]."""
    results = common.load(STORE, cells(learner, number, which))
    episodes, _ = rounds(learner)[number]
    order = ("instance", "hparams", "seed")
    ends = [
        np.concatenate([run.metric(metric).isel(learner=0, episode=-1).transpose(*order) for run in results.values()])
        for metric in ("strong_regret", "strong_violation")
    ]
    per_episode = np.array(ends) / episodes
    per_episode = per_episode.reshape(2, -1, 2, *per_episode.shape[2:])
    return np.exp(np.log(np.maximum(with_tail(per_episode.sum(axis=0)), 1e-6)).mean(axis=(0, 1))), per_episode


def table(
    learner: str, number: int, which: list[int], score: np.ndarray, per_episode: np.ndarray, show: int = 8
) -> str:
    """The best choices, with regret and violation per episode on each kind of instance."""
    regret, violation = per_episode
    choices = drawn(learner)
    names = list(choices[0])
    kinds = [kind for group in groups(learner).values() for kind in group]
    rows = [["score", *names, *(f"{kind}: regret + violation" for kind in kinds)]]
    for i in np.argsort(score)[:show]:
        means = (f"{regret[k, :, i].mean():.4f} + {violation[k, :, i].mean():.4f}" for k in range(len(kinds)))
        rows.append([f"{score[i]:.4f}", *(f"{choices[which[i]][name]:.3g}" for name in names), *means])
    episodes, _ = rounds(learner)[number]
    about = f"median score {np.median(score):.3f}, worst {score.max():.3f}"
    return f"{learner}, T = {episodes:,} ({about})\n{format_table(rows)}\n"


def search(learner: str, run: bool) -> None:
    """Both rounds with the earlier preset, and their tables."""
    which, last = list(range(CHOICES)), len(rounds(learner)) - 1
    for number in [*range(last + 1), *([last] if learner in BEFORE else [])]:
        if run:
            common.run(STORE, cells(learner, number, which))
        score, per_episode = scores(learner, number, which)
        print(table(learner, number, which, score, per_episode), flush=True)
        which = [which[i] for i in np.argsort(score)[:FINALISTS]] if number < last else [CHOICES]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="only print the tables from stored results")
    parser.add_argument("--learner", nargs="+", choices=list(RANGES), default=list(RANGES))
    chosen = parser.parse_args()
    for learner in chosen.learner:
        search(learner, not chosen.table)


if __name__ == "__main__":
    main()
