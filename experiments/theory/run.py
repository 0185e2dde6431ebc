"""Do the events of the analysis hold as often as promised? The exact constants with the monitor on, then broken ones.

    python experiments/theory/run.py

Claim tested: Lemmas 1 and 2 (at most delta of the seeds have any failure in any episode at any pair), the transition
set (at most 4 delta), and the inequalities that follow. delta = 0.05, 200 seeds x 20,000 episodes, `random` 5 x 5 x 3
with 2 constraints. Then the same with every logarithm times 0.001: the monitor must see it fail.
"""

from __future__ import annotations

import argparse

import cpdpo_jax as cp

BROKEN = {name: "x0.001" for name in ("reward_confidence", "cost_confidence", "transition_confidence")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=200)
    chosen = parser.parse_args()
    cmdp = cp.envs.make("random", layers=5, states=5, actions=3, constraints=2, rho=0.5, key=1)
    settings = ["theory", {"preset": "theory", **BROKEN}]
    result = cp.simulate(
        "cpdpo", cmdp, episodes=chosen.episodes, seeds=chosen.seeds, hparams=settings, monitor=True, checkpoints=20
    )
    print(result.monitor_table())


if __name__ == "__main__":
    main()
