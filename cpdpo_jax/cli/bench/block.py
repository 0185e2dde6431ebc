"""One block of lanes in the middle of a run, to take apart: the state after some episodes of CPD-PO."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from cpdpo_jax.cli.bench.simulator import HORIZON, Size, instance
from cpdpo_jax.learners.base import Learner
from cpdpo_jax.simulation import compiled_loop
from cpdpo_jax.simulation.lanes import lane_inputs, padded
from cpdpo_jax.simulation.options import Options
from cpdpo_jax.simulation.plan import prepare
from cpdpo_jax.simulation.workers import use_compilation_cache


class Block(NamedTuple):
    """What `compiled_loop.advance` is called with."""

    learner: Learner
    noise: str
    lanes: compiled_loop.LaneInputs
    state: compiled_loop.LoopState
    episode: int  # episodes done

    def advanced(self, episodes: int) -> Block:
        """So many episodes later; the old block's state is taken over and must not be used again."""
        last = self.episode + episodes
        state = compiled_loop.advance(self.learner, self.noise, self.lanes, self.state, self.episode, last)
        return self._replace(state=jax.block_until_ready(state), episode=last)


def start(size: Size, lanes: int, learner: str = "cpdpo") -> Block:
    """A block of a learner with the theory's constants before its first episode."""
    use_compilation_cache()
    options = Options(checkpoints=1)
    whole = prepare(learner, instance(size), episodes=HORIZON, seeds=lanes, hparams="theory", options=options)
    plan, nothing = whole.learners[0], np.zeros(lanes, int)
    lane = padded(nothing, nothing, whole.seeds, lanes)
    given = lane_inputs(plan, lane, plan.phases[-1], np.asarray(plan.problem.slater_margin)[lane.instance])
    return Block(plan.learner, plan.cmdp.noise, given, compiled_loop.begin(plan.learner, given), 0)


def bytes_per_lane(tree: Any, lanes: int) -> float:
    """Of the arrays that have an entry per lane."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if leaf.ndim and leaf.shape[-1] == lanes]
    return sum(leaf.nbytes for leaf in leaves) / lanes
