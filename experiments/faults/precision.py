"""float32 against float64 for the greedy learners: when seeds diverge, and whether the means agree.

python -m experiments.faults.precision        A seed's two runs diverge when an argmax of two nearly equal values flips.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import cpdpo_jax as cp
from cpdpo_jax.simulation.blocks import advance, begin, with_plan_precision
from cpdpo_jax.simulation.lanes import lane_inputs, split_into_blocks
from cpdpo_jax.simulation.options import Options
from cpdpo_jax.simulation.plan import LearnerPlan, prepare

LEARNERS = ("triple_q", "optdual")
EPISODES, SEEDS = 2000, 64


@with_plan_precision
def policies(plan: LearnerPlan) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The policies [T,L,S,A,B] played, the multipliers before each [T,M,B], and the strong regret [B]."""
    lane = split_into_blocks(plan, np.arange(SEEDS), None, 1)[0]
    phase = plan.phases[0]
    inputs = lane_inputs(plan, lane, phase, plan.believed(lane.hparams, lane.instance))
    state = begin(phase.learner, plan.environment, inputs)
    play = jax.jit(phase.learner.policy)
    played, multipliers = [], []
    for t in range(EPISODES):
        played.append(np.asarray(play(inputs.problem, inputs.hyper, state.learner)))
        state = advance(phase.learner, plan.environment, inputs, state, t, t + 1)
        multipliers.append(np.asarray(state.info.multipliers))
    return np.stack(played), np.stack(multipliers), np.asarray(state.sums.strong[0], np.float64)


def compare(learner: str) -> dict[str, Any]:
    """The number of seeds that diverge, the closeness before that, and the paired difference of the regrets."""
    cmdp = cp.envs.make("random", layers=3, states=3, actions=2, constraints=1, rho=0.5)
    single, double = (
        policies(prepare(learner, cmdp, episodes=EPISODES, seeds=SEEDS, options=Options(dtype=dtype)).learners[0])
        for dtype in ("float32", "float64")
    )
    apart = np.abs(single[0] - double[0]).max(axis=(1, 2, 3)) > 0.5  # [T,B]
    first = np.where(apart.any(axis=0), apart.argmax(axis=0), EPISODES)  # [B]
    flipped = [int((np.abs(single[0][t] - double[0][t])[..., b] > 0.5).any(axis=-1).sum())
               for b, t in enumerate(first) if t < EPISODES]  # fmt: skip
    before = max(np.abs(single[1] - double[1])[:t, :, b].max(initial=0) for b, t in enumerate(first))
    difference = single[2] - double[2]
    half = 1.96 * difference.std(ddof=1) / np.sqrt(SEEDS)
    return {
        "seeds that part": len(flipped),
        "states flipped at once, median": float(np.median(flipped)) if flipped else 0.0,
        "largest difference of multipliers before": float(before),
        "strong regret, float64": float(double[2].mean()),
        "its 95 % half width": float(1.96 * double[2].std(ddof=1) / np.sqrt(SEEDS)),
        "largest difference in a seed": float(np.abs(difference).max()),
        "mean difference": float(difference.mean()),
        "half width of the difference": float(half),
    }


if __name__ == "__main__":
    for name in LEARNERS:
        print(name)
        for what, value in compare(name).items():
            print(f"  {what:42} {value:.3g}")
