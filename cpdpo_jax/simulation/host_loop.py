"""The loop for learners that cannot be compiled because they call a solver: NumPy in float64, lane by lane.

Each lane is played by itself, with arrays that do not know of the others, so that a seed gives the same bits whatever
it runs beside. Draws and structures are those of `compiled_loop`: lanes trail in what goes in and comes out.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import numpy as np

from cpdpo_jax.common.types import Trajectory
from cpdpo_jax.exact.lp import evaluate
from cpdpo_jax.learners.base import Info, Learner
from cpdpo_jax.simulation.compiled_loop import LaneInputs, LoopState, Sums
from cpdpo_jax.simulation.played import SUM_TOLERANCE, Played
from cpdpo_jax.simulation.randomness import init_key, threefry2x32, update_key
from cpdpo_jax.simulation.rollout import sample

DRAWN = 256  # episodes whose uniforms are made at once


def begin(learner: Learner, lanes: LaneInputs, t: int = 0) -> LoopState:
    """Before episode t, the first of a phase."""
    n_constraints, n_lanes = lanes.problem.threshold.shape
    gaps, count = np.zeros((1 + n_constraints, n_lanes)), np.zeros(n_lanes, np.int32)
    sums = Sums(strong=gaps, weak=gaps, multipliers=gaps[1:])
    states = [_start(learner, lane(lanes, b), t) for b in range(n_lanes)]
    none = np.full(n_lanes, -1, np.int32)
    played = Played(np.zeros(n_lanes), np.ones(n_lanes), none)
    return LoopState(_stacked(states), sums, sums, gaps, Info(gaps[1:], count, count), none, played)


def _start(learner: Learner, one: LaneInputs, t: int) -> Any:
    own = (init_key(one.keys, t),) if learner.randomness else ()
    return learner.init(one.problem, one.hyper, *own)


def advance(learner: Learner, noise: str, lanes: LaneInputs, state: LoopState, first: int, last: int) -> LoopState:
    """Episodes first..last-1 (counted from 0) of every lane; a float64 sum needs no compensation."""
    if first == last:
        return state
    n_lanes = lanes.problem.threshold.shape[1]
    done = [_advance_lane(learner, noise, lane(lanes, b), lane(state, b), first, last) for b in range(n_lanes)]
    return _stacked(done)


def policy(learner: Learner, lanes: LaneInputs, state: Any) -> np.ndarray:
    """What each lane would play next, [L,S,A,B]."""
    each = [(lane(lanes, b), lane(state, b)) for b in range(lanes.problem.threshold.shape[1])]
    return np.stack([learner.policy(one.problem, one.hyper, state) for one, state in each], axis=-1)


def lane(tree: Any, b: int) -> Any:
    """One lane of a structure, contiguous and without the trailing axis; size 1 serves all lanes."""
    return jax.tree.map(lambda leaf: np.array(leaf[..., b if leaf.shape[-1] > 1 else 0], order="C"), tree)


def uniforms(key: np.ndarray, first: int, last: int, shape: tuple[int, ...]) -> np.ndarray:
    """The uniforms of `draws.uniforms` for a lane's key [2] in episodes first..last-1: [n, *shape] float64."""
    size = int(np.prod(shape))
    episode = np.arange(first, last, dtype=np.uint32)[:, None]
    index = np.arange((size + 1) // 2, dtype=np.uint32)
    words = threefry2x32((key[0], key[1]), (episode, index))
    bits = np.concatenate(np.broadcast_arrays(*words), axis=1)[:, :size]
    return ((bits >> np.uint32(8)) * 2.0**-24).reshape(-1, *shape)


def rollout(model: Any, policy: np.ndarray, draws: np.ndarray, noise: str) -> Trajectory:
    """`rollout.rollout` for one lane: a `rollout.Model` of NumPy arrays, policy [L,S,A], uniforms [L,3+M]."""
    n_layers = len(policy)
    until = np.where(model.last_action, 2.0, np.cumsum(policy, axis=2))
    state, action = np.zeros(n_layers, np.int32), np.zeros(n_layers, np.int32)
    for k in range(n_layers):
        x = state[k]
        action[k] = until[k, x, :-1].searchsorted(draws[k, 0], side="right")
        if k + 1 < n_layers:
            state[k + 1] = model.arrival[k, x, action[k]].searchsorted(draws[k, 1], side="right")
    mean = model.payoff[:, np.arange(n_layers), state, action]  # [1+M,L]
    if noise == "bernoulli":
        drawn = (mean > draws[:, 2:].T).astype(float)
    elif noise == "deterministic":
        drawn = mean
    else:
        drawn = _beta(mean, draws[:, 2:].T, model.concentration)
    return Trajectory(state=state, action=action, reward=drawn[0], cost=drawn[1:])


def _beta(mean: np.ndarray, uniform: np.ndarray, concentration: np.ndarray) -> np.ndarray:
    """The sampler of `rollout` as it is in float32, the default, for the same luck as the other learners'."""
    arguments = (np.asarray(array, np.float32)[..., None] for array in (mean, uniform, concentration))
    with jax.enable_x64(False):
        return np.asarray(_compiled_sample()(*arguments, "beta"), float)[..., 0]


@lru_cache(maxsize=1)
def _compiled_sample() -> Any:
    return jax.jit(sample, static_argnums=3)


def _advance_lane(
    learner: Learner, noise: str, lanes: LaneInputs, state: LoopState, first: int, last: int
) -> LoopState:
    """`advance` for one lane."""
    model, problem, learned, info = lanes.model, lanes.problem, state.learner, state.info
    shape = (problem.action_mask.shape[0], 3 + len(problem.threshold))
    strong, weak, multipliers = (
        np.asarray(one, float) - lost for one, lost in zip(state.sums, state.carry, strict=True)
    )
    first_bad, gaps, evaluated, played = state.first_bad, state.gaps, None, state.played
    for t in range(first, last if first_bad < 0 else first):  # a lane that is not finite stands still
        if (t - first) % DRAWN == 0:
            draws = uniforms(lanes.keys, t, min(t + DRAWN, last), shape)
        policy = learner.policy(problem, lanes.hyper, learned)
        trajectory = rollout(model, policy, draws[(t - first) % DRAWN], noise)
        if policy is not evaluated:
            values, evaluated = evaluate(model.transition, policy, model.payoff), policy
            gaps = np.append(lanes.optimum - values[0], values[1:] - problem.threshold)
            played = _check_played(played, policy, problem.action_mask, t)
        if not np.isfinite(gaps[0]):
            first_bad = np.array(t, np.int32)
            break
        own = (update_key(lanes.keys, t),) if learner.randomness else ()
        learned, info = learner.update(problem, lanes.hyper, learned, policy, trajectory, *own)
        strong, weak, multipliers = strong + np.maximum(gaps, 0), weak + gaps, multipliers + info.multipliers
    none = np.zeros((), np.int32)
    info = info if info.infeasible is not None else info._replace(infeasible=none)
    sums = Sums(strong, weak, multipliers)
    return LoopState(learned, sums, jax.tree.map(np.zeros_like, sums), gaps, info, first_bad, played)


def _check_played(before: Played, policy: np.ndarray, mask: np.ndarray, t: int) -> Played:
    """`played.check_played` for one lane."""
    error = np.abs(policy.sum(axis=2) - mask.any(axis=2)).max()
    least = np.where(mask, policy, -np.abs(policy)).min()
    improper = before.first_improper < 0 and (error > SUM_TOLERANCE or least < 0)
    first = np.array(t, np.int32) if improper else before.first_improper
    return Played(np.maximum(before.sum_error, error), np.minimum(before.least, least), first)


def _stacked(trees: list[Any]) -> Any:
    """Lanes side by side on a new last axis."""
    return jax.tree.map(lambda *leaves: np.stack(leaves, axis=-1), *trees)
