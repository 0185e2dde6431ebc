"""The loop for learners that cannot be compiled because they call a solver: NumPy in float64, lane by lane.

Each lane runs separately with its own arrays, so that a seed's results are bit-identical whatever other lanes run.
Draws and structures are those of `compiled_loop`: lanes are the trailing axis of inputs and outputs.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from cpdpo_jax.common.types import SUM_TOLERANCE, Trajectory
from cpdpo_jax.exact.lp import evaluate
from cpdpo_jax.learners.base import Info, Learner
from cpdpo_jax.simulation.compiled_loop import LaneInputs, LoopState, Sums, init_learner
from cpdpo_jax.simulation.losses import Environment, begin_losses, next_losses
from cpdpo_jax.simulation.policy_check import PolicyCheck
from cpdpo_jax.simulation.randomness import threefry2x32, update_key
from cpdpo_jax.simulation.rollout import Noise, sample

EPISODES_PER_DRAW = 256  # episodes whose uniforms are drawn in one call


def begin(learner: Learner, environment: Environment, lanes: LaneInputs, t: int = 0) -> LoopState:
    """The state before episode t, the first of a phase."""
    n_constraints, n_lanes = lanes.problem.threshold.shape
    gaps, count = np.zeros((1 + n_constraints, n_lanes)), np.zeros(n_lanes, np.int32)
    sums = Sums(strong=gaps, weak=gaps, multipliers=gaps[1:])
    inputs = [select_lane(lanes._replace(truth=None), b) for b in range(n_lanes)]
    states = [init_learner(learner, lane, t) for lane in inputs]
    none = np.full(n_lanes, -1, np.int32)
    check = PolicyCheck(np.zeros(n_lanes), np.ones(n_lanes), none)
    adversary = None
    if not isinstance(environment, str):
        policies = [learner.policy(lane.problem, lane.hyper, s) for lane, s in zip(inputs, states, strict=True)]
        adversary = _stack_lanes([begin_losses(environment, policy) for policy in policies])
    return LoopState(
        _stack_lanes(states), sums, sums, gaps, Info(gaps[1:], count, count), none, check, adversary=adversary
    )


def advance(
    learner: Learner, environment: Environment, lanes: LaneInputs, state: LoopState, first: int, last: int
) -> LoopState:
    """Run episodes first..last-1 (counted from 0) of every lane; float64 sums need no compensation."""
    if first == last:
        return state
    n_lanes, lanes = lanes.problem.threshold.shape[1], lanes._replace(truth=None)
    return _stack_lanes(
        [
            _advance_lane(learner, environment, select_lane(lanes, b), select_lane(state, b), first, last)
            for b in range(n_lanes)
        ]
    )


def policy(learner: Learner, lanes: LaneInputs, state: Any) -> np.ndarray:
    """The next policy of each lane, [L,S,A,B]."""
    pairs = [(select_lane(lanes, b), select_lane(state, b)) for b in range(lanes.problem.threshold.shape[1])]
    return np.stack([learner.policy(lane.problem, lane.hyper, state) for lane, state in pairs], axis=-1)


def select_lane(tree: Any, b: int) -> Any:
    """Lane b of a structure, contiguous and without the trailing axis; an axis of size 1 is shared by all lanes."""
    return jax.tree.map(lambda leaf: np.array(leaf[..., b if leaf.shape[-1] > 1 else 0], order="C"), tree)


def uniforms(key: np.ndarray, first: int, last: int, shape: tuple[int, ...]) -> np.ndarray:
    """The uniforms of `threefry.uniforms` for a lane's key [2] in episodes first..last-1: [n, *shape] float64."""
    size = int(np.prod(shape))
    episode = np.arange(first, last, dtype=np.uint32)[:, None]
    index = np.arange((size + 1) // 2, dtype=np.uint32)
    words = threefry2x32((key[0], key[1]), (episode, index))
    bits = np.concatenate(np.broadcast_arrays(*words), axis=1)[:, :size]
    return ((bits >> np.uint32(8)) * 2.0**-24).reshape(-1, *shape)


def rollout(model: Any, policy: np.ndarray, draws: np.ndarray, noise: Noise) -> Trajectory:
    """`rollout.rollout` for one lane: a `rollout.Model` of NumPy arrays, policy [L,S,A], uniforms [L,3+M]."""
    n_layers = len(policy)
    cumulative = np.where(model.last_action, 2.0, np.cumsum(policy, axis=2))
    state, action = np.zeros(n_layers, np.int32), np.zeros(n_layers, np.int32)
    for k in range(n_layers):
        x = state[k]
        action[k] = cumulative[k, x, :-1].searchsorted(draws[k, 0], side="right")
        if k + 1 < n_layers:
            state[k + 1] = model.arrival[k, x, action[k]].searchsorted(draws[k, 1], side="right")
    mean = model.payoff[:, np.arange(n_layers), state, action]  # [1+M,L]
    drawn = _sample(mean, draws[:, 2:].T, model.concentration, noise)
    return Trajectory(state=state, action=action, reward=drawn[0], cost=drawn[1:])


def _sample(mean: np.ndarray, uniform: np.ndarray, concentration: np.ndarray, noise: Noise) -> np.ndarray:
    """`rollout.sample` for one lane, [1+M,L]."""
    if isinstance(noise, tuple):
        reward = _sample(mean[:1], uniform[:1], concentration, noise[0])
        return np.concatenate([reward, _sample(mean[1:], uniform[1:], concentration, noise[1])])
    if noise == "bernoulli":
        return (mean > uniform).astype(float)
    return mean if noise == "deterministic" else _beta(mean, uniform, concentration)


def _beta(mean: np.ndarray, uniform: np.ndarray, concentration: np.ndarray) -> np.ndarray:
    """The sampler of `rollout` in float32, the default, so that all learners share common random numbers."""
    arguments = (np.asarray(array, np.float32)[..., None] for array in (mean, uniform, concentration))
    with jax.enable_x64(False):
        return np.asarray(_compiled_sample(*arguments, "beta"), float)[..., 0]


_compiled_sample = jax.jit(sample, static_argnums=3)


def values(learner: Learner, lane: LaneInputs, state: Any, policy: np.ndarray, payoff: Any) -> np.ndarray:
    """V(x_0) of each payoff [K,L,S,A] under the policy, or under the mixture from which it was drawn: [K]."""
    if learner.mixture is None:
        return evaluate(lane.model.transition, policy, payoff)
    weights, policies = learner.mixture(lane.problem, lane.hyper, state)
    return weights @ np.stack([evaluate(lane.model.transition, policy, payoff) for policy in policies])


def _advance_lane(
    learner: Learner, environment: Environment, lanes: LaneInputs, state: LoopState, first: int, last: int
) -> LoopState:
    """`advance` for one lane."""
    model, problem, learned, info = lanes.model, lanes.problem, state.learner, state.info
    shape = (problem.action_mask.shape[0], 3 + len(problem.threshold))
    strong, weak, multipliers = (
        np.asarray(total, float) - error for total, error in zip(state.sums, state.carry, strict=True)
    )
    first_non_finite, gaps, evaluated, check = state.first_non_finite, state.gaps, None, state.policy_check
    adversary: Any = state.adversary
    noise: Noise = environment if isinstance(environment, str) else ""
    for t in range(first, last if first_non_finite < 0 else first):  # a lane with a non-finite value stops
        if (t - first) % EPISODES_PER_DRAW == 0:
            draws = uniforms(lanes.keys, t, min(t + EPISODES_PER_DRAW, last), shape)
        policy = learner.policy(problem, lanes.hyper, learned)
        if not isinstance(environment, str):
            noise, model, adversary = next_losses(environment, lanes.model, adversary, t, policy)
        trajectory = rollout(model, policy, draws[(t - first) % EPISODES_PER_DRAW], noise)
        if policy is not evaluated or learner.mixture is not None or not isinstance(environment, str):
            value, evaluated = values(learner, lanes, learned, policy, model.payoff), policy
            gaps = np.append(lanes.optimum - value[0], value[1:] - problem.threshold)
            check = _update_check(check, policy, problem.action_mask, t)
        if not np.isfinite(gaps[0]):
            first_non_finite = np.array(t, np.int32)
            break
        key = (update_key(lanes.keys, t),) if learner.randomness else ()
        learned, info = learner.update(problem, lanes.hyper, learned, policy, trajectory, *key)
        strong, weak, multipliers = strong + np.maximum(gaps, 0), weak + gaps, multipliers + info.multipliers
    none = np.zeros((), np.int32)
    info = info if info.infeasible is not None else info._replace(infeasible=none)
    sums = Sums(strong, weak, multipliers)
    zero = jax.tree.map(np.zeros_like, sums)
    return LoopState(learned, sums, zero, gaps, info, first_non_finite, check, adversary=adversary)


def _update_check(check: PolicyCheck, policy: np.ndarray, mask: np.ndarray, t: int) -> PolicyCheck:
    """`policy_check.update_check` for one lane."""
    error = np.abs(policy.sum(axis=2) - mask.any(axis=2)).max()
    lowest = np.where(mask, policy, -np.abs(policy)).min()
    improper = check.first_improper < 0 and (error > SUM_TOLERANCE or lowest < 0)
    first = np.array(t, np.int32) if improper else check.first_improper
    return PolicyCheck(np.maximum(check.sum_error, error), np.minimum(check.min_probability, lowest), first)


def _stack_lanes(trees: list[Any]) -> Any:
    """Stack lanes on a new last axis."""
    return jax.tree.map(lambda *leaves: np.stack(leaves, axis=-1), *trees)
