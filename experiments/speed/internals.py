"""All internals of the package that this experiment uses; its other modules use public names only.

`Block` is one block of lanes in the middle of a run: for measuring parts of an episode and for compiling its loop.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from cpdpo_jax.kernels.machines.sizes import ACCELERATOR_LOOP_LENGTH
from cpdpo_jax.kernels.machines.target import tracing_for
from cpdpo_jax.learners.base import Learner
from cpdpo_jax.learners.estimates import observe
from cpdpo_jax.simulation import compiled_loop
from cpdpo_jax.simulation.lanes import lane_inputs, pad_block
from cpdpo_jax.simulation.options import Options
from cpdpo_jax.simulation.plan import prepare
from cpdpo_jax.simulation.randomness import uniforms
from cpdpo_jax.simulation.rollout import rollout
from experiments.speed.timing import HORIZON, Size, instance

__all__ = ["LOOPS", "Block", "lower_for_gpu", "observe", "rollout", "start", "uniforms"]

BUILT_LANES = 32
LOOPS = 2  # nested loops of a program for an accelerator: outer loop, and inner loop over episodes


class Block(NamedTuple):
    """The arguments of `compiled_loop.advance`."""

    learner: Learner
    noise: str
    lanes: compiled_loop.LaneInputs
    state: compiled_loop.LoopState
    episode: int  # completed episodes

    def advanced(self, episodes: int) -> Block:
        """The block after `episodes` more; the state is donated, so this block must not be used again."""
        last = self.episode + episodes
        state = compiled_loop.advance(self.learner, self.noise, self.lanes, self.state, self.episode, last)
        return self._replace(state=jax.block_until_ready(state), episode=last)


def start(size: Size, lanes: int, learner: str = "cpdpo") -> Block:
    """A block of a learner with the theory's constants before its first episode."""
    options = Options(checkpoints=1)
    prepared = prepare(learner, instance(size), episodes=HORIZON, seeds=lanes, hparams="theory", options=options)
    plan, zeros = prepared.learners[0], np.zeros(lanes, int)
    lane = pad_block(zeros, zeros, prepared.seeds, lanes)
    inputs = lane_inputs(plan, lane, plan.phases[-1], plan.believed(lane.hparams, lane.instance))
    return Block(plan.learner, plan.cmdp.noise, inputs, compiled_loop.begin(plan.learner, plan.environment, inputs), 0)


def lower_for_gpu(size: Size, lanes: int, learner: str, sharding: Any) -> tuple[Any, float]:
    """The loop lowered for an absent GPU with `lanes` lanes, and the bytes of its state per lane.

    The block is built with `BUILT_LANES` lanes and its shapes are then widened: the state need not fit this machine.
    """

    def widened(leaf: Any) -> Any:
        wide = leaf.ndim and leaf.shape[-1] == BUILT_LANES
        return jax.ShapeDtypeStruct((*leaf.shape[:-1], lanes) if wide else leaf.shape, leaf.dtype, sharding=sharding)

    with tracing_for("gpu"):
        block = start(size, BUILT_LANES, learner)
        step = partial(compiled_loop.run_episodes, block.learner, block.noise)
        bounds = jax.numpy.int32(0), jax.numpy.int32(ACCELERATOR_LOOP_LENGTH)
        arguments = jax.tree.map(widened, (block.lanes, block.state, *bounds))
        lowered = jax.jit(step, donate_argnums=1).trace(*arguments).lower(lowering_platforms=("cuda",))
    leaves = [leaf for leaf in jax.tree.leaves(block.state) if leaf.ndim and leaf.shape[-1] == BUILT_LANES]
    return lowered, sum(leaf.nbytes for leaf in leaves) / BUILT_LANES
