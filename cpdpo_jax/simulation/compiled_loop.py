"""The compiled loop: episodes of one learner on a block of lanes, with exact metrics of every policy played.

A lane is one (instance, hparams, seed); lanes are the trailing axis everywhere. One call advances a block by any number
of episodes (the bounds are traced: no recompilation). Results do not depend on how a run is split into calls.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cpdpo_jax.common.types import Array, Trajectory
from cpdpo_jax.kernels import root_value
from cpdpo_jax.kernels.machines import programs
from cpdpo_jax.kernels.sums import compensated_add
from cpdpo_jax.kernels.tracing import mark_varying, materialise
from cpdpo_jax.learners.base import Info, Learner, Problem
from cpdpo_jax.simulation import monitor
from cpdpo_jax.simulation.learner_program import LearnerProgram
from cpdpo_jax.simulation.losses import Adversary, Environment, begin_losses, next_losses
from cpdpo_jax.simulation.policy_check import PolicyCheck, empty_check, update_check
from cpdpo_jax.simulation.randomness import init_key, uniforms, update_key
from cpdpo_jax.simulation.rollout import Model, Noise, rollout


class LaneInputs(NamedTuple):
    """The inputs of a block of lanes, constant during a run."""

    model: Model
    problem: Problem
    hyper: Any
    keys: Array  # [2,B] uint32
    optimum: Array  # [B] OPT
    truth: monitor.Truth | None = None  # if given, the analysis is monitored


class Sums(NamedTuple):
    """Compensated sums (Kahan) over all episodes so far: relative error 2e-7 in float32 after 10^8 episodes."""

    strong: Array  # [1+M,B] positive parts of the gaps: strong regret and strong violations
    weak: Array  # [1+M,B] the gaps with their sign
    multipliers: Array  # [M,B]


class LoopState(NamedTuple):
    """The state of the loop; a pytree of arrays, so that it can be stored and resumed."""

    learner: Any  # the learner's state
    sums: Sums
    carry: Sums  # rounding errors of `sums`
    gaps: Array  # [1+M,B] of the last episode: OPT - V(r), then V(g_i) - alpha_i
    info: Info  # of the last episode
    first_non_finite: Array  # [B] int32, first episode with a non-finite value; -1 if none
    policy_check: PolicyCheck  # whether every policy played was a probability distribution
    watch: monitor.MonitorState | None = None
    adversary: Adversary | None = None  # for losses that change with the episode


class Episode(NamedTuple):
    """An episode of all lanes."""

    policy: jax.Array  # [L,S,A,B] pi_t
    trajectory: Trajectory
    gaps: jax.Array  # [1+M,B]
    info: Info
    adversary: Adversary | None = None  # after the episode


def play_episode(
    learner: Learner,
    environment: Environment,
    lanes: LaneInputs,
    state: Any,
    draws: jax.Array,
    t: jax.Array,
    adversary: Adversary | None = None,
) -> tuple[Any, Episode]:
    """Run episode t with the given uniforms [L,3+M,B]: sample, evaluate exactly, update."""
    policy = materialise(learner.policy(lanes.problem, lanes.hyper, state))
    model = lanes.model
    noise: Noise = environment if isinstance(environment, str) else ""
    if not isinstance(environment, str) and adversary is not None:
        noise, model, adversary = next_losses(environment, model, adversary, t, policy)
    trajectory = rollout(model, policy, draws, noise)
    values = root_value(model.transition, policy, model.payoff)
    gaps = jnp.concatenate([lanes.optimum[None] - values[:1], values[1:] - lanes.problem.threshold])
    key = (update_key(lanes.keys, t),) if learner.randomness else ()
    state, info = learner.update(lanes.problem, lanes.hyper, state, policy, trajectory, *key)
    return state, Episode(policy, trajectory, gaps, info, adversary)


def init_learner(learner: Learner, lanes: LaneInputs, t: Array | int) -> Any:
    """The learner's state before episode t, the first of a phase."""
    key = (init_key(lanes.keys, t),) if learner.randomness else ()
    return learner.init(lanes.problem, lanes.hyper, *key)


def begin(learner: Learner, environment: Environment, lanes: LaneInputs, t: Array | int = 0) -> LoopState:
    """The state before episode t, the first of a phase. Leaves do not share buffers, because `advance` donates them."""
    n_constraints, n_lanes = lanes.problem.threshold.shape
    dtype, count = lanes.optimum.dtype, jnp.zeros(n_lanes, jnp.int32)
    gaps = jnp.zeros((1 + n_constraints, n_lanes), dtype)
    sums = Sums(strong=gaps, weak=gaps, multipliers=gaps[1:])
    learner_state = init_learner(learner, lanes, t)
    state = LoopState(
        learner=learner_state,
        sums=sums,
        carry=sums,
        gaps=gaps,
        info=Info(gaps[1:], count, count if learner.extra_knowledge else None),
        first_non_finite=jnp.full(n_lanes, -1, jnp.int32),
        policy_check=empty_check(n_lanes, dtype),
        watch=monitor.start(learner.analysis, n_lanes, dtype) if lanes.truth and learner.analysis else None,
    )
    if not isinstance(environment, str):
        state = state._replace(
            adversary=begin_losses(environment, learner.policy(lanes.problem, lanes.hyper, learner_state))
        )
    return jax.tree.map(jnp.copy, state)


def run_episode(
    learner: Learner, environment: Environment, lanes: LaneInputs, state: LoopState, t: jax.Array
) -> LoopState:
    """Run episode t of every lane: draw uniforms, sample, evaluate, update, add to the sums."""
    n_layers, n_constraints = lanes.problem.action_mask.shape[0], lanes.problem.threshold.shape[0]
    draws = uniforms(lanes.keys, t, (n_layers, 3 + n_constraints)).astype(lanes.optimum.dtype)
    after, episode = play_episode(learner, environment, lanes, state.learner, draws, t, state.adversary)
    terms = Sums(strong=jnp.maximum(episode.gaps, 0), weak=episode.gaps, multipliers=episode.info.multipliers)
    sums, carry = compensated_add(state.sums, state.carry, terms)
    failed = (state.first_non_finite < 0) & ~jnp.isfinite(episode.gaps[0])
    watch = None
    if state.watch is not None and learner.analysis is not None:
        watch = monitor.observe(state.watch, learner.analysis, lanes, state.learner, after, episode)
    state = LoopState(
        learner=after,
        sums=sums,
        carry=carry,
        gaps=episode.gaps,
        info=jax.tree.map(
            lambda leaf: jnp.where(t < 0, 0, leaf), episode.info
        ),  # avoids a copy of the learner's counts
        first_non_finite=jnp.where(failed, t, state.first_non_finite),
        policy_check=update_check(state.policy_check, episode.policy, lanes.problem.action_mask, t),
        watch=watch,
        adversary=episode.adversary,
    )
    return mark_varying(state)


def run_episodes(
    learner: Learner, environment: Environment, lanes: LaneInputs, state: LoopState, first: Array, last: Array
) -> LoopState:
    """Run episodes first..last-1 (counted from 0) of every lane, inside a trace."""
    step = partial(run_episode, learner, environment, lanes)

    def inner_loop(length: int, i: jax.Array, state: LoopState) -> LoopState:
        """A loop of known length needs no host synchronisation on accelerators and compiles to faster code on CPUs."""
        times = i + jnp.arange(length, dtype=jnp.int32)
        return jax.lax.scan(lambda state, t: (step(state, t), None), state, times, unroll=length == 1)[0]

    length = programs.inner_loop_length()
    if length > 1:
        count = (last - first) // length
        state = jax.lax.fori_loop(0, count, lambda i, state: inner_loop(length, first + i * length, state), state)
        first = first + count * length
    return jax.lax.fori_loop(first, last, partial(inner_loop, 1), state)


# environment is static, the state is donated
_run = LearnerProgram(run_episodes, static_argnums=0, donate_argnums=2)
_copy = jax.jit(lambda tree: jax.tree.map(jnp.copy, tree))


def advance(
    learner: Learner, environment: Environment, lanes: LaneInputs, state: LoopState, first: int, last: int
) -> LoopState:
    """Compiled `run_episodes`; `state` is donated. A call of zero episodes only compiles."""
    if state.watch is not None and lanes.truth is not None:
        return _advance_monitored(learner, environment, lanes, state, first, last)
    return _run(learner, environment, lanes._replace(truth=None), state, first, last)


def _advance_monitored(
    learner: Learner, environment: Environment, lanes: LaneInputs, state: LoopState, first: int, last: int
) -> LoopState:
    """`advance` with the program of an unmonitored run, one episode per call, each followed by the monitor.

    Monitoring inside the loop would change XLA's fusion and so the rounding; here results stay bit-identical.
    """
    watch, state = state.watch, state._replace(watch=None)
    for t in range(first, max(last, first + 1)):
        before = _copy(state.learner)  # `advance` donates its state
        state = advance(learner, environment, lanes, state, t, min(t + 1, last))
        observed = _monitor(learner, lanes, before, state, watch)
        watch = observed if t < last else watch
    return state._replace(watch=watch)


def _observe(
    learner: Learner, lanes: LaneInputs, before: Any, after: LoopState, watch: monitor.MonitorState
) -> monitor.MonitorState:
    """Update the monitor with the episode between two states of the learner."""
    assert learner.analysis is not None  # `monitor.truth` is None without one
    episode = monitor.ObservedEpisode(learner.policy(lanes.problem, lanes.hyper, before), after.gaps, after.info)
    return monitor.observe(watch, learner.analysis, lanes, before, after.learner, episode)


_monitor = LearnerProgram(_observe)
