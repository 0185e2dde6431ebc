"""Runs blocks of a run directory: a pack from the blocks' descriptions alone (`run_pack`), or all of them."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import jax
import numpy as np

from cpdpo_jax.common.machine import cores
from cpdpo_jax.simulation.assemble import assemble
from cpdpo_jax.simulation.blocks import (
    SNAPSHOT_SECONDS,
    Snapshot,
    advance,
    begin,
    compile_block,
    run_block,
    with_plan_precision,
)
from cpdpo_jax.simulation.curves import BlockCurves
from cpdpo_jax.simulation.lanes import LaneIndex, lane_inputs
from cpdpo_jax.simulation.plan import LearnerPlan
from cpdpo_jax.simulation.workers import use_compilation_cache
from cpdpo_jax.sweeps import snapshots
from cpdpo_jax.sweeps.config_text import environment_label
from cpdpo_jax.sweeps.packing import Pack, join, make_packs, split
from cpdpo_jax.sweeps.provenance import rounding
from cpdpo_jax.sweeps.specification import BlockSpec, build_batch, build_block, description
from cpdpo_jax.sweeps.store import Store

PROBE_SECONDS = 0.3


def run_pack(
    store: Store,
    pack: Pack,
    progress: Callable[[int], None] = lambda n: None,
    stop: Callable[[], bool] = lambda: False,
    every: float = SNAPSHOT_SECONDS,
) -> bool:
    """Run the blocks of a pack from their snapshots or from the start, and store them; False if stopped.

    The curves of a lane are NaN from its first non-finite value on; a pack of only such lanes ends early.
    """
    blocks, reported = pack.blocks, 0  # episodes
    while blocks:
        plan, lane = build_batch(list(blocks.values()), pack.batch, pack.narrow)
        lanes, launch = [len(block["seeds"]) for block in blocks.values()], len(lane.seed)
        width = launch if plan.on_host else next(iter(blocks.values()))["width"]
        begun = [snapshot for key in blocks if (snapshot := snapshots.load(store, key)) is not None]
        start = join(begun, lanes, launch, width) if len(begun) == len(blocks) else None
        if start is not None and start.episode > reported:
            progress((start.episode - reported) * lane.count)
        keep = functools.partial(_keep, store, list(blocks), lanes, launch, width)
        started = time.perf_counter()
        curves = run_block(
            plan, lane, lambda n, count=lane.count: progress(n * count), stop, start=start, save=keep, every=every
        )
        seconds, reported = time.perf_counter() - started, int(curves.done)
        unfinished = {}
        for (key, block), part in zip(blocks.items(), split(curves, lanes, launch, width), strict=True):
            ended = (part.first_non_finite > 0).all()
            if reported == block["episodes"] or (ended and reported in plan.calls):
                _finish(store, key, block, part, seconds * len(block["seeds"]) / lane.count)
            else:
                unfinished[key] = block
        if unfinished and stop():
            return False
        blocks = unfinished
    return True


def _keep(store: Store, keys: list[str], lanes: list[int], launch: int, width: int, snapshot: Snapshot) -> None:
    """Store the snapshots of a pack's blocks, except of blocks that end early because no lane is finite."""
    for key, part in zip(keys, split(snapshot, lanes, launch, width), strict=True):
        if not (part.curves.first_non_finite > 0).all():
            snapshots.save(store, key, part)


def _finish(store: Store, key: str, block: BlockSpec, curves: BlockCurves, seconds: float) -> None:
    """Store the result of a block."""
    simulation, plan, lane = build_block(block)
    solution = jax.tree.map(lambda leaf: np.asarray(leaf)[..., [block["instance"]]], simulation.solution)
    seeds = np.asarray(block["seeds"])
    result = assemble([plan], [(0, lane, curves)], seeds, solution, simulation.attributes, seconds, False)
    label = environment_label(block["environment"])
    text = description(json.dumps(block["environment"]), block["instance"])
    result.data.attrs.update(
        environment=label, description=text, block=json.dumps(block, sort_keys=True), block_key=key,
        rounding=json.dumps(rounding()),
    )  # fmt: skip
    store.finish(key, result)


class Engine(Protocol):
    """Runs packs of blocks."""

    @property
    def workers(self) -> int:
        """The number of packs that run in parallel."""
        ...

    @property
    def machines(self) -> Sequence[dict[str, str]]:
        """The kinds of machine (`provenance.rounding`) of other processes that ran blocks."""
        ...

    def run(self, store: Store, packs: Sequence[Pack], *, every: float, progress: bool) -> bool:
        """Run packs and store their blocks; False if stopped by Ctrl-C.

        An error in one block, such as a full disk, stops the others at their next snapshot and is raised.
        """
        ...


def run_all(
    store: Store, blocks: dict[str, BlockSpec], engine: Engine, *, every: float = SNAPSHOT_SECONDS, quiet: bool = False
) -> bool:
    """Run every block that is not finished; False if stopped by Ctrl-C."""
    todo = {key: block for key, block in blocks.items() if not store.is_done(key)}
    begun = {key: snapshots.episodes_done(store, key) for key in todo}
    return engine.run(store, make_packs(todo, begun, engine.workers), every=every, progress=not quiet) if todo else True


class Probe(NamedTuple):
    """Estimates for a run from a short measurement."""

    compilations: int
    compile_seconds: float
    run_seconds: float
    megabytes: float
    microseconds: dict[str, float]  # by learner and environment: per seed and episode on one core


def probe(blocks: dict[str, BlockSpec], packs: Sequence[Pack]) -> Probe:
    """Compile each program of a run and time it for a fraction of a second; `packs` are those of the blocks."""
    use_compilation_cache()
    rates: dict[str, float] = {}
    seen: dict[str, float] = {}
    compile_seconds = run_seconds = size = 0.0
    for pack in packs:
        if pack.program not in seen:
            started = time.perf_counter()
            compile_pack(pack)
            compile_seconds += time.perf_counter() - started
            plan, lane = _build(pack)
            seen[pack.program] = _time_episodes(plan, lane, pack.first["episodes"])
            name = f"{pack.first['learner']} on {environment_label(pack.first['environment'])}"
            rates[name] = 1e6 * seen[pack.program] / len(lane.seed)
        run_seconds += seen[pack.program] * pack.first["episodes"]
    for block in blocks.values():
        _, plan, lane = build_block(block)
        m = plan.cmdp.n_constraints
        size += 60_000 + 8 * len(lane.seed) * (len(plan.checkpoints) * (4 + 5 * m) + plan.cmdp.reward.size)
    return Probe(len(seen), compile_seconds, run_seconds / cores(), size / 1e6, rates)


def _build(pack: Pack) -> tuple[LearnerPlan, LaneIndex]:
    """The plan and the lanes of a pack."""
    return build_batch(list(pack.blocks.values()), pack.batch, pack.narrow)


@with_plan_precision
def _time_episodes(plan: LearnerPlan, lane: LaneIndex, episodes: int) -> float:
    """Seconds per episode for all lanes on one core; doubles the episodes until the time is measurable."""
    phase = plan.phases[-1]
    lanes = lane_inputs(plan, lane, phase, plan.believed(lane.hparams, lane.instance))
    state, n = begin(phase.learner, plan.environment, lanes), 16
    while True:
        started = time.perf_counter()
        state = jax.block_until_ready(advance(phase.learner, plan.environment, lanes, state, 0, n))
        seconds = time.perf_counter() - started
        if seconds > PROBE_SECONDS or n >= episodes:
            return seconds / n
        n *= 2


_COMPILED: set[str] = set()


def compile_pack(pack: Pack) -> None:
    """Compile the program of a pack, unless this process has done so."""
    if pack.program not in _COMPILED:
        compile_block(*_build(pack))
        _COMPILED.add(pack.program)
