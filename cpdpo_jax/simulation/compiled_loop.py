"""The compiled loop: episodes of one learner on a block of lanes, with exact metrics of every policy played.

A lane is one (instance, setting, seed); lanes are the trailing axis everywhere. One call advances a whole block by
any number of episodes (the bounds are traced: no recompilation), and how a run is cut into calls changes no bit of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cpdpo_jax.common.types import Array, Trajectory
from cpdpo_jax.kernels.cpu.choice import WIDEST_OF_XLA
from cpdpo_jax.kernels.cpu.few_functions import in_few_functions
from cpdpo_jax.kernels.cpu.in_place import stored
from cpdpo_jax.kernels.cpu.single_function import single_cpu_function
from cpdpo_jax.kernels.cpu.switch import cpu_acceleration_enabled
from cpdpo_jax.kernels.sums import compensated_add
from cpdpo_jax.kernels.target import for_accelerator
from cpdpo_jax.kernels.values import root_value
from cpdpo_jax.learners.base import Info, Learner, Problem
from cpdpo_jax.learners.estimates import whole_payoffs
from cpdpo_jax.simulation import monitor
from cpdpo_jax.simulation.hoisting import hoisted
from cpdpo_jax.simulation.played import Played, check_played, nothing_played
from cpdpo_jax.simulation.programs import LearnerProgram
from cpdpo_jax.simulation.randomness import init_key, uniforms, update_key
from cpdpo_jax.simulation.rollout import Model, rollout, summed

STRETCH = 64  # episodes of a loop whose length an accelerator's host knows: it waits once in so many
MANY_LANES = 64  # of a block; with fewer the CPU's compiler is told to unroll less


class LaneInputs(NamedTuple):
    """What does not change along a run."""

    model: Model
    problem: Problem
    hyper: Any
    keys: Array  # [2,B] uint32
    optimum: Array  # [B] OPT
    truth: monitor.Truth | None = None  # given: watch the analysis


class Sums(NamedTuple):
    """Sums over all episodes so far, compensated (Kahan): float32 keeps them to 2e-7 relative at 10^8 episodes."""

    strong: Array  # [1+M,B] positive parts of the gaps: strong regret, then strong violations
    weak: Array  # [1+M,B] the gaps with their sign
    multipliers: Array  # [M,B]


class LoopState(NamedTuple):
    """What changes along a run; a pytree of arrays, so that it can be stored and taken up again."""

    learner: Any  # the learner's own state
    sums: Sums
    carry: Sums  # what `sums` lost to rounding
    gaps: Array  # [1+M,B] of the last episode: OPT - V(r), then V(g_i) - alpha_i
    info: Info  # of the last episode
    first_bad: Array  # [B] int32, first episode with a value that is not finite; -1: none
    played: Played  # whether all that was played were policies
    watch: monitor.Watch | None = None


class Episode(NamedTuple):
    """One episode, whole."""

    policy: jax.Array  # [L,S,A,B] pi_t
    trajectory: Trajectory
    gaps: jax.Array  # [1+M,B]
    info: Info


def play(
    learner: Learner, noise: str, lanes: LaneInputs, state: Any, draws: jax.Array, t: jax.Array
) -> tuple[Any, Episode]:
    """Episode t on the given uniforms [L,3+M,B]: play, evaluate exactly, update."""
    policy = learner.policy(lanes.problem, lanes.hyper, state)
    if policy.shape[1] <= WIDEST_OF_XLA:  # in wider layers it is handed to numba's kernels, and stored for them
        policy = stored(policy)
    trajectory = rollout(lanes.model, policy, draws, noise)
    values = root_value(lanes.model.transition, policy, lanes.model.payoff)
    gaps = _gaps(values, lanes)
    own = (update_key(lanes.keys, t),) if learner.randomness else ()
    with whole_payoffs(trajectory if noise == "bernoulli" else None):
        state, info = learner.update(lanes.problem, lanes.hyper, state, policy, trajectory, *own)
    return state, Episode(policy=policy, trajectory=trajectory, gaps=gaps, info=info)


def _gaps(values: jax.Array, lanes: LaneInputs) -> jax.Array:
    """OPT - V(r), then V(g_i) - alpha_i: [1+M,B]."""
    optimum, threshold = lanes.optimum[None], lanes.problem.threshold
    if not for_accelerator():
        return jnp.concatenate([optimum - values[:1], values[1:] - threshold])
    first = jnp.arange(len(values))[:, None] == 0  # a concatenation would be a kernel of its own
    aim = jnp.where(first, optimum, jnp.pad(threshold, [(1, 0), (0, 0)]))
    return jnp.where(first, aim - values, values - aim)


def start(learner: Learner, lanes: LaneInputs, t: Array | int) -> Any:
    """The learner's state before episode t, the first of a phase."""
    own = (init_key(lanes.keys, t),) if learner.randomness else ()
    return learner.init(lanes.problem, lanes.hyper, *own)


def begin(learner: Learner, lanes: LaneInputs, t: Array | int = 0) -> LoopState:
    """Before episode t, the first of a phase. Every leaf has a buffer of its own: `advance` takes them over."""
    n_constraints, n_lanes = lanes.problem.threshold.shape
    dtype, count = lanes.optimum.dtype, jnp.zeros(n_lanes, jnp.int32)
    state = LoopState(
        learner=start(learner, lanes, t),
        sums=zero_sums(n_constraints, n_lanes, dtype),
        carry=zero_sums(n_constraints, n_lanes, dtype),
        gaps=jnp.zeros((1 + n_constraints, n_lanes), dtype),
        info=Info(jnp.zeros((n_constraints, n_lanes), dtype), count, count if learner.extra_knowledge else None),
        first_bad=jnp.full(n_lanes, -1, jnp.int32),
        played=nothing_played(n_lanes, dtype),
        watch=monitor.start(learner.analysis, n_lanes, dtype) if lanes.truth and learner.analysis else None,
    )
    return jax.tree.map(jnp.copy, state)


def zero_sums(n_constraints: int, n_lanes: int, dtype) -> Sums:
    """Nothing added yet."""
    gaps = jnp.zeros((1 + n_constraints, n_lanes), dtype)
    return Sums(strong=gaps, weak=gaps, multipliers=gaps[1:])


def episode(learner: Learner, noise: str, lanes: LaneInputs, state: LoopState, t: jax.Array) -> LoopState:
    """Episode t of every lane: draw its luck, play, evaluate, update, add up."""
    n_layers, n_constraints = lanes.problem.action_mask.shape[0], lanes.problem.threshold.shape[0]
    draws = uniforms(lanes.keys, t, (n_layers, 3 + n_constraints)).astype(lanes.optimum.dtype)
    after, played = play(learner, noise, lanes, state.learner, draws, t)
    terms = Sums(strong=jnp.maximum(played.gaps, 0), weak=played.gaps, multipliers=played.info.multipliers)
    sums, carry = compensated_add(state.sums, state.carry, terms)
    bad = (state.first_bad < 0) & ~jnp.isfinite(played.gaps[0])
    checked = check_played(state.played, played.policy, lanes.problem.action_mask, t)
    watch = None
    if state.watch is not None and learner.analysis is not None:
        watch = monitor.observe(state.watch, learner.analysis, lanes, state.learner, after, played)
    first_bad = jnp.where(bad, t, state.first_bad)
    info = played.info
    if for_accelerator():  # what the learner keeps too (its epochs) would be copied: made a second time, it is not
        info = jax.tree.map(lambda leaf: jnp.where(t < 0, 0, leaf), info)
    return LoopState(after, sums, carry, played.gaps, info, first_bad, checked, watch)


def episode_of(
    learner: Learner, noise: str, lanes: LaneInputs, like: LoopState, *, few_functions: bool = True
) -> Callable[[LoopState, jax.Array], LoopState]:
    """`episode` as a function of state and t; for an accelerator, what never changes is computed before the loop."""
    one = partial(episode, learner, noise)
    if for_accelerator():
        return hoisted(one, lanes, like, jnp.int32(0))
    return in_few_functions(partial(one, lanes)) if few_functions else partial(one, lanes)


def advance(learner: Learner, noise: str, lanes: LaneInputs, state: LoopState, first: int, last: int) -> LoopState:
    """Episodes first..last-1 (counted from 0) of every lane, compiled; `state` is donated.

    On an accelerator in loops of `STRETCH` episodes, and what is left over one by one; a call of none compiles both.
    """
    noise, run = summed(noise, last), program(lanes)
    if not for_accelerator():
        return run(learner, noise, lanes, state, first, last)[0]
    middle = last - (last - first) % STRETCH
    if first < middle or first == last:
        state = run(learner, noise, lanes, state, first, middle, STRETCH)[0]
    if middle < last or first == last:
        state = run(learner, noise, lanes, state, middle, last)[0]
    return state


def stepping(
    learner: Learner, noise: str, lanes: LaneInputs, state: LoopState, last: int
) -> Callable[[LoopState, int, int], LoopState]:
    """`advance` as a function of (state, first, last) alone, for calls of few episodes, none of them after `last`."""
    if for_accelerator():
        return partial(advance, learner, noise, lanes)
    noise = summed(noise, last)
    run = program(lanes).ready(learner, noise, lanes, state, 0, last)
    return lambda state, first, last: run(noise, lanes, state, first, last)[0]


def program(lanes: LaneInputs) -> Any:
    """`advance_whole`, compiled; on a CPU, unless its accelerations are off, as is best for so many lanes."""
    if not cpu_acceleration_enabled():
        return _plain
    few = lanes.keys.shape[-1] < MANY_LANES and lanes.problem.action_mask.shape[1] <= WIDEST_OF_XLA
    return _of_few_lanes if few else _of_many_lanes


def call_multiple() -> int:
    """Of how many episodes the length of a call is best a multiple."""
    return STRETCH if for_accelerator() else 1


def advance_whole(
    learner: Learner,
    noise: str,
    lanes: LaneInputs,
    state: LoopState,
    first: jax.Array,
    last: jax.Array,
    stretch: int = 1,
    *,
    single: bool = True,
) -> tuple[LoopState, Any]:
    """`advance`, and what `single_cpu_function` wants returned.

    The loop is a scan over `stretch` episodes inside a loop over stretches, of which there are as many as asked for:
    last - first must be a multiple of `stretch`. A CPU wants one episode (the scan then costs nothing and any call
    length is the same program); an accelerator wants many, because its host waits at every turn of the outer loop.
    """

    one = episode_of(learner, noise, lanes, state, few_functions=single)

    def step(state: LoopState, t: jax.Array) -> tuple[LoopState, None]:
        return one(state, t), None

    def stretches(i: jax.Array, state: LoopState) -> LoopState:
        times = offset + i * stretch + jnp.arange(stretch, dtype=jnp.int32)
        return jax.lax.scan(step, state, times, unroll=stretch == 1)[0]

    begin, end, offset = (first, last, 0) if stretch == 1 else (0, (last - first) // stretch, first)

    def loop(state: LoopState) -> LoopState:
        return jax.lax.fori_loop(begin, end, stretches, state)

    return single_cpu_function(loop, state) if single else (loop(state), [])


def _advance_in_pieces(learner: Learner, *arguments: Any) -> tuple[LoopState, Any]:
    return advance_whole(learner, *arguments, single=False)


_AS_JITTED: Any = {"static_argnums": (0, 5), "donate_argnums": 2}  # noise, stretch; state
_plain = LearnerProgram(advance_whole, **_AS_JITTED)


def _for_cpu(**compiler_options: Any) -> LearnerProgram:
    """For a CPU's vectors of 512 bits, not 256: a fifth less time where it has them (not inside another jit)."""
    options = _AS_JITTED | {"compiler_options": {"xla_cpu_prefer_vector_width": 512} | compiler_options}
    return LearnerProgram(advance_whole, otherwise=LearnerProgram(_advance_in_pieces, **options), **options)


_of_many_lanes = _for_cpu()
# LLVM's third level unrolls a loop over few lanes before it looks for vectors in it, and then finds none
_of_few_lanes = _for_cpu(xla_backend_optimization_level=2)


def replay(
    learner: Learner,
    noise: str,
    lanes: LaneInputs,
    draws: jax.Array,
    record: Callable[[Any], Any] = lambda state: None,
) -> tuple[Any, Episode, Any]:
    """Episodes on draws from outside, [n,L,3+M,B], everything kept: (last state, episodes [n,...], records [n,...]).

    `record` says what to keep of the learner's state after each update.
    """

    def step(state: Any, given: tuple[jax.Array, jax.Array]) -> tuple[Any, tuple[Episode, Any]]:
        draw, t = given
        state, played = play(learner, noise, lanes, state, draw, t)
        return state, (played, record(state))

    times = jnp.arange(len(draws), dtype=jnp.int32)
    state, (episodes, records) = jax.lax.scan(step, start(learner, lanes, 0), (draws, times))
    return state, episodes, records
