"""One block of lanes in the middle of a run, to take apart: the state after some episodes of CPD-PO."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from cpdpo_jax.cli.bench.simulator import HORIZON, Size, instance
from cpdpo_jax.learners.base import Learner
from cpdpo_jax.simulation import compiled_loop
from cpdpo_jax.simulation.blocks import LaneIndex, make_lanes
from cpdpo_jax.simulation.simulate import prepare, use_compilation_cache


class Block(NamedTuple):
    """What `compiled_loop.advance` is called with."""

    learner: Learner
    noise: str
    lanes: compiled_loop.LaneInputs
    run: compiled_loop.LoopState
    episode: int  # episodes done

    def advanced(self, episodes: int) -> Block:
        """So many episodes later; the old block's state is taken over and must not be used again."""
        last = self.episode + episodes
        run = compiled_loop.advance(self.learner, self.noise, self.lanes, self.run, self.episode, last)
        return self._replace(run=jax.block_until_ready(run), episode=last)


def start(size: Size, lanes: int) -> Block:
    """A block of CPD-PO with the theory's constants before its first episode."""
    use_compilation_cache()
    plan = prepare("cpdpo", instance(size), episodes=HORIZON, seeds=lanes, hparams="theory", checkpoints=1)
    work = plan.works[0]
    nothing = np.zeros(lanes, int)
    lane = LaneIndex(instance=nothing, setting=nothing, seed=plan.seeds, real=nothing == 0)
    phase = work.phases[-1]
    given = make_lanes(work, lane, phase, np.asarray(work.problem.slater_margin)[lane.instance])
    return Block(phase.learner, work.cmdp.noise, given, compiled_loop.begin(phase.learner, given), 0)


def bytes_per_lane(tree: Any, lanes: int) -> float:
    """Of the arrays that have an entry per lane."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if leaf.ndim and leaf.shape[-1] == lanes]
    return sum(leaf.nbytes for leaf in leaves) / lanes
