"""A learner against losses that change with the episode: what it loses, and its regret against the best fixed policy.

Bandit feedback: the learner sees the losses of the pairs it visits, as rewards 1 - loss without noise. The losses may
depend on the policies that it played before (`envs.chasing`); the best fixed policy is that of the losses that came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common.types import CMDP
from cpdpo_jax.envs.adversarial import AdaptiveLosses, Losses
from cpdpo_jax.exact.lp import evaluate
from cpdpo_jax.exact.optimum import solve
from cpdpo_jax.kernels.values import policy_value
from cpdpo_jax.learners.base import Learner
from cpdpo_jax.simulation import host_loop
from cpdpo_jax.simulation.compiled_loop import LaneInputs
from cpdpo_jax.simulation.lanes import lane_inputs, padded
from cpdpo_jax.simulation.options import Options
from cpdpo_jax.simulation.plan import prepare
from cpdpo_jax.simulation.randomness import uniforms
from cpdpo_jax.simulation.rollout import rollout


class Played(NamedTuple):
    """What came of it, at each checkpoint and for each seed."""

    episodes: np.ndarray  # [C]
    loss: np.ndarray  # [C,seeds] of the policies played, expected, summed
    best: np.ndarray  # [C,seeds] of the fixed policy that is the best for the losses so far, by LP
    regret: np.ndarray  # [C,seeds] loss - best


class Sums(NamedTuple):
    """What changes along a run; sums since the last checkpoint."""

    learner: Any
    memory: Any  # the adversary's
    loss: Any  # [B]
    tables: Any  # [L,S,A,B] of the losses


def play_losses(
    learner: str | Learner,
    cmdp: CMDP,
    losses: Losses | AdaptiveLosses,
    *,
    seeds: int,
    hparams: Any = "tuned",
    key: int = 0,
    checkpoints: int | str | Sequence[int] = "log",
) -> Played:
    """All T = losses.episodes episodes of every seed. One instance, one setting; constraints are ignored."""
    options = Options(key=key, checkpoints=checkpoints)
    plan = prepare(learner, cmdp, episodes=losses.episodes, seeds=seeds, hparams=hparams, options=options).learners[0]
    if plan.cmdp.batch_shape != (1,) or len(plan.settings) != 1:
        raise ValueError("play_losses takes one instance and one setting; call it once for each.")
    zeros = np.zeros(seeds, int)
    lane = padded(zeros, zeros, np.arange(seeds), seeds)
    lanes = lane_inputs(plan, lane, plan.phases[0], np.asarray(plan.problem.slater_margin)[zeros])
    run = _compiled if plan.learner.compiled else _on_host
    loss, tables = run(plan.learner, losses, lanes, [int(point) for point in plan.checkpoints])
    mean = tables / plan.checkpoints[:, None, None, None, None]
    best = plan.checkpoints[:, None] * np.array([[least_loss(cmdp, at[..., b]) for b in zeros + np.arange(seeds)]
                                                 for at in mean])  # fmt: skip
    return Played(plan.checkpoints, loss, best, loss - best)


def least_loss(cmdp: CMDP, mean: np.ndarray) -> float:
    """min over policies of V(mean loss), [L,S,A]: the LP of `solve` with its certificate, for the reward 1 - loss."""
    n_layers = len(mean)
    reward = np.where(cmdp.action_mask, np.clip(1 - mean, 0.0, 1.0), 0.0)
    free = np.full(np.shape(cmdp.threshold), float(n_layers))  # no constraint binds
    return n_layers - float(solve(replace(cmdp, reward=reward, threshold=free)).value)


def _table(losses: Losses | AdaptiveLosses, t: Any, memory: Any) -> Any:
    """The losses of episode t, [L,S,A,B or 1]."""
    return losses(t)[..., None] if isinstance(losses, Losses) else losses(t, memory)


def _compiled(
    learner: Learner, losses: Losses | AdaptiveLosses, lanes: LaneInputs, points: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    state = learner.init(lanes.problem, lanes.hyper)
    policy = learner.policy(lanes.problem, lanes.hyper, state)
    memory = losses.start(policy) if isinstance(losses, AdaptiveLosses) else jnp.zeros(())
    nothing = Sums(state, memory, jnp.zeros_like(lanes.optimum), jnp.zeros_like(policy))
    loss, tables, totals, first = np.zeros(len(lanes.optimum)), np.zeros(policy.shape), [], 0
    sums = nothing
    for last in points:
        sums = _advance(learner, losses, lanes, sums, first, last)
        loss, tables = loss + np.asarray(sums.loss, float), tables + np.asarray(sums.tables, float)
        totals.append((loss, tables))
        sums, first = sums._replace(loss=nothing.loss, tables=nothing.tables), last
    return np.stack([one[0] for one in totals]), np.stack([one[1] for one in totals])


@partial(jax.jit, static_argnums=(0, 1))
def _advance(
    learner: Learner, losses: Losses | AdaptiveLosses, lanes: LaneInputs, sums: Sums, first: Any, last: Any
) -> Sums:
    """Episodes first..last-1 of every lane."""
    n_layers, n_constraints = lanes.problem.action_mask.shape[0], lanes.problem.threshold.shape[0]

    def episode(t: jax.Array, sums: Sums) -> Sums:
        draws = uniforms(lanes.keys, t, (n_layers, 3 + n_constraints)).astype(lanes.optimum.dtype)
        policy = learner.policy(lanes.problem, lanes.hyper, sums.learner)
        table = jnp.broadcast_to(_table(losses, t, sums.memory), policy.shape).astype(policy.dtype)
        costs = jnp.broadcast_to(lanes.model.payoff[1:], (n_constraints, *policy.shape))
        model = lanes.model._replace(payoff=jnp.concatenate([1 - table[None], costs]))
        trajectory = rollout(model, policy, draws, "deterministic")
        loss = policy_value(lanes.model.transition, policy, table[None])[0, 0, 0]
        state, _ = learner.update(lanes.problem, lanes.hyper, sums.learner, policy, trajectory)
        memory = losses.remember(sums.memory, policy) if isinstance(losses, AdaptiveLosses) else sums.memory
        return Sums(state, memory, sums.loss + loss, sums.tables + table)

    return jax.lax.fori_loop(first, last, episode, sums)


def _on_host(
    learner: Learner, losses: Losses | AdaptiveLosses, lanes: LaneInputs, points: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    each = [_lane(learner, losses, host_loop.lane(lanes, b), points) for b in range(len(lanes.optimum))]
    return np.stack([one[0] for one in each], axis=-1), np.stack([one[1] for one in each], axis=-1)


def _lane(
    learner: Learner, losses: Losses | AdaptiveLosses, lanes: LaneInputs, points: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """One seed on the host: sums at the checkpoints, [C] and [C,L,S,A]."""
    problem, hyper, model = lanes.problem, lanes.hyper, lanes.model
    state = learner.init(problem, hyper)
    policy = learner.policy(problem, hyper, state)
    memory = losses.start(policy) if isinstance(losses, AdaptiveLosses) else None
    loss, tables, totals = 0.0, np.zeros(policy.shape), []
    for t in range(points[-1]):
        draws = host_loop.uniforms(lanes.keys, t, t + 1, (len(policy), 3 + len(problem.threshold)))[0]
        policy = learner.policy(problem, hyper, state)
        table = losses(t) if isinstance(losses, Losses) else losses(t, memory)
        told = model._replace(payoff=np.concatenate([1 - table[None], model.payoff[1:]]))
        trajectory = host_loop.rollout(told, policy, draws, "deterministic")
        loss, tables = loss + float(evaluate(model.transition, policy, table[None])[0]), tables + table
        state, _ = learner.update(problem, hyper, state, policy, trajectory)
        if isinstance(losses, AdaptiveLosses):
            memory = losses.remember(memory, policy)
        if t + 1 in points:
            totals.append((loss, tables))
    return np.array([one[0] for one in totals]), np.stack([one[1] for one in totals])
