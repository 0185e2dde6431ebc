"""The curves of a block of lanes: cumulative metrics at the checkpoints, on the host and in traced programs."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from cpdpo_jax.common.types import CMDP
from cpdpo_jax.learners.base import Analysis
from cpdpo_jax.simulation import compiled_loop


class BlockCurves(NamedTuple):
    """Curves with checkpoints first and lanes last: float64 on the host, NaN if not reached; else the run's type."""

    strong: np.ndarray  # [C,1+M,B] cumulative
    weak: np.ndarray  # [C,1+M,B] cumulative
    multiplier_mean: np.ndarray  # [C,M,B] over the episodes so far
    multiplier: np.ndarray  # [C,M,B] of the last episode
    gaps: np.ndarray  # [C,1+M,B] of the last episode
    epochs: np.ndarray  # [C,B]
    infeasible: np.ndarray  # [C,B]; NaN for learners that solve no LPs
    failures: np.ndarray  # [C,events,B] results of the monitor
    slack: np.ndarray  # [C,events,B]
    watched: np.ndarray  # [C,sums,B] sums of the learner's analysis
    policy: np.ndarray  # [L,S,A,B] after the last completed episode
    slater_margin: np.ndarray  # [B] rho as given to the learner
    first_non_finite: np.ndarray  # [B] first episode (from 1) with a non-finite value; 0 if none
    done: np.ndarray  # [] completed episodes


AT_CHECKPOINTS = tuple(BlockCurves._fields[: BlockCurves._fields.index("policy")])


def empty_curves(n_checkpoints: int, cmdp: CMDP, n_lanes: int, analysis: Analysis | None) -> BlockCurves:
    """Curves of NaN with zero completed episodes."""
    n, m = n_checkpoints, cmdp.n_constraints
    events, sums = (len(analysis.events), len(analysis.sums)) if analysis else (0, 0)

    def nan(*shape: int) -> np.ndarray:
        return np.full((*shape, n_lanes), np.nan)

    return BlockCurves(
        strong=nan(n, 1 + m),
        weak=nan(n, 1 + m),
        multiplier_mean=nan(n, m),
        multiplier=nan(n, m),
        gaps=nan(n, 1 + m),
        epochs=nan(n),
        infeasible=nan(n),
        failures=nan(n, events),
        slack=nan(n, events),
        watched=nan(n, sums),
        policy=nan(*cmdp.reward.shape[:3]),
        slater_margin=nan(),
        first_non_finite=np.zeros(n_lanes, int),
        done=np.zeros((), int),
    )


def at_checkpoint(state: compiled_loop.LoopState, t: Any) -> dict[str, Any]:
    """The entries of `AT_CHECKPOINTS` after t episodes, corrected for rounding errors; None if not applicable."""
    strong, weak, multipliers = jax.tree.map(lambda sums, error: sums - error, state.sums, state.carry)
    watch = state.watch
    return {
        "strong": strong,
        "weak": weak,
        "multiplier_mean": multipliers / t,
        "multiplier": state.info.multipliers,
        "gaps": state.gaps,
        "epochs": state.info.epochs,
        "infeasible": state.info.infeasible,
        "failures": None if watch is None else watch.failures,
        "slack": None if watch is None else watch.slack,
        "watched": None if watch is None else watch.sums - watch.carry,
    }


def write_checkpoint(curves: BlockCurves, position: int, t: int, state: compiled_loop.LoopState) -> None:
    """Write the current curves at a checkpoint, in float64; NaN for lanes that had a non-finite value."""
    exact = jax.tree.map(lambda leaf: np.asarray(leaf, float), state._replace(learner=None, adversary=None))
    failed = np.asarray(state.first_non_finite) >= 0
    for name, values in at_checkpoint(exact, t).items():
        if values is not None:
            getattr(curves, name)[position] = values
        getattr(curves, name)[position][..., failed] = np.nan
