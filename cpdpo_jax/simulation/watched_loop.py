"""A run that is watched: the loop of one that is not, the same program, stopped after every episode for a look.

Watching inside the loop would change how XLA fuses it, and with that its rounding. Here it changes no bit of the run.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from cpdpo_jax.learners.base import Learner
from cpdpo_jax.simulation import compiled_loop, monitor
from cpdpo_jax.simulation.compiled_loop import LaneInputs, LoopState
from cpdpo_jax.simulation.programs import LearnerProgram


def advance(learner: Learner, noise: str, lanes: LaneInputs, state: LoopState, first: int, last: int) -> LoopState:
    """`compiled_loop.advance`, and what the monitor sees in every episode; a call of no episodes compiles all of it."""
    watch, state, unwatched = state.watch, state._replace(watch=None), lanes._replace(truth=None)
    if first == last:
        _look(learner, lanes, _copied(state.learner), state, watch)
        state = compiled_loop.advance(learner, noise, unwatched, state, first, last)
        return state._replace(watch=watch)
    advance_to = compiled_loop.stepping(learner, noise, unwatched, state, last)
    look = _look.ready(learner, lanes, state.learner, state, watch)
    for t in range(first, last):
        before = _copied(state.learner)  # what `advance_to` is handed is gone
        state = advance_to(state, t, t + 1)
        watch = look(lanes, before, state, watch)
    return state._replace(watch=watch)


def _observe(learner: Learner, lanes: LaneInputs, before: Any, after: LoopState, watch: monitor.Watch) -> monitor.Watch:
    """The monitor's look at the episode between two states of the learner."""
    assert learner.analysis is not None  # `monitor.truth` refuses to watch a learner without
    episode = monitor.Seen(learner.policy(lanes.problem, lanes.hyper, before), after.gaps, after.info)
    return monitor.observe(watch, learner.analysis, lanes, before, after.learner, episode)


_look = LearnerProgram(_observe)
_copied = jax.jit(lambda tree: jax.tree.map(jnp.copy, tree))
