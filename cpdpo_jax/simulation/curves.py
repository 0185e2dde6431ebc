"""What a block of lanes has to tell: cumulative metrics at the checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from cpdpo_jax.common.types import CMDP
from cpdpo_jax.learners.base import Analysis
from cpdpo_jax.simulation import compiled_loop
from cpdpo_jax.simulation.played import SUM_TOLERANCE, Played


class BlockCurves(NamedTuple):
    """What a block has to tell, float64 on the host; NaN where it did not get to. Checkpoints lead, lanes trail."""

    strong: np.ndarray  # [C,1+M,B] cumulative
    weak: np.ndarray  # [C,1+M,B] cumulative
    multiplier_mean: np.ndarray  # [C,M,B] over the episodes so far
    multiplier: np.ndarray  # [C,M,B] of the last episode
    gaps: np.ndarray  # [C,1+M,B] of the last episode
    epochs: np.ndarray  # [C,B]
    infeasible: np.ndarray  # [C,B]; NaN for learners that solve no LPs
    failures: np.ndarray  # [C,events,B] of the monitor
    slack: np.ndarray  # [C,events,B]
    watched: np.ndarray  # [C,sums,B] what the learner's analysis adds up
    policy: np.ndarray  # [L,S,A,B] after the last episode done
    slater_margin: np.ndarray  # [B] rho as the learner believed it
    first_bad: np.ndarray  # [B] first episode (from 1) with a value that is not finite; 0: none
    done: np.ndarray  # [] episodes done


AT_CHECKPOINTS = tuple(BlockCurves._fields[: BlockCurves._fields.index("policy")])


def empty_curves(n_checkpoints: int, cmdp: CMDP, n_lanes: int, analysis: Analysis | None) -> BlockCurves:
    """All NaN, nothing done."""
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
        first_bad=np.zeros(n_lanes, int),
        done=np.zeros((), int),
    )


def write(curves: BlockCurves, at: int, t: int, state: compiled_loop.LoopState) -> None:
    """Put the sums so far at a checkpoint; NaN for a lane that has had a value that is not finite."""
    exact = jax.tree.map(lambda sums, lost: np.asarray(sums, float) - np.asarray(lost, float), state.sums, state.carry)
    curves.strong[at], curves.weak[at], curves.multiplier_mean[at] = exact.strong, exact.weak, exact.multipliers / t
    curves.multiplier[at], curves.gaps[at], curves.epochs[at] = state.info.multipliers, state.gaps, state.info.epochs
    if state.info.infeasible is not None:
        curves.infeasible[at] = state.info.infeasible
    if state.watch is not None:
        curves.failures[at], curves.slack[at] = state.watch.failures, state.watch.slack
        curves.watched[at] = np.asarray(state.watch.sums, float) - np.asarray(state.watch.carry, float)
    bad = np.asarray(state.first_bad) >= 0
    for name in AT_CHECKPOINTS:
        getattr(curves, name)[at][..., bad] = np.nan


def refuse_improper(played: Played, learner: str, describe: Callable[[int], str]) -> None:
    """Refuse a run in which a lane played what is not a policy: its metrics mean nothing. `describe` names a lane."""
    first = np.asarray(played.first_improper)
    if (first < 0).all():
        return
    lane = int(np.argmin(np.where(first < 0, np.iinfo(np.int32).max, first)))
    error, least = float(np.asarray(played.sum_error)[lane]), float(np.asarray(played.least)[lane])
    what = f"the probabilities of a state sum to 1 only up to {error:.3g}" if error > SUM_TOLERANCE else ""
    below = f"a probability is {least:.3g}, or minus that at an action that is not allowed" if least < 0 else ""
    raise ValueError(
        f"learner {learner!r} plays something that is not a policy, first in episode {first[lane] + 1} of "
        f"{describe(lane)}: {' and '.join(filter(None, (what, below)))}; its `policy` must return probabilities that "
        "sum to 1 over the actions of problem.action_mask, and 0 elsewhere."
    )


def check_policy(policy: np.ndarray, mask: np.ndarray, name: str) -> None:
    """Refuse what is not a policy: the metrics of a run that ends with one mean nothing. Both [L,S,A,B]."""
    wrong = np.abs(policy.sum(axis=2) - mask.any(axis=2)) > 1e-3
    wrong |= ((policy < 0) | ((policy > 0) & ~mask)).any(axis=2)
    if wrong.any():
        layer, state, lane = np.argwhere(wrong)[0]
        played = np.round(policy[layer, state, :, lane], 4).tolist()
        raise ValueError(
            f"learner {name!r} plays something that is not a policy: {played} in state {state} of layer {layer}; its "
            "`policy` must return probabilities that sum to 1 over the actions of problem.action_mask, and 0 elsewhere."
        )
