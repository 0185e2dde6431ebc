"""Running blocks in a run directory: `run_pack`, a function of their descriptions alone, and all of them at once."""

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
    KEEP_SECONDS,
    Snapshot,
    advance,
    begin,
    compile_block,
    in_its_precision,
    run_block,
)
from cpdpo_jax.simulation.curves import BlockCurves
from cpdpo_jax.simulation.lanes import LaneIndex, lane_inputs
from cpdpo_jax.simulation.plan import LearnerPlan
from cpdpo_jax.simulation.workers import how_many, use_compilation_cache
from cpdpo_jax.sweeps import snapshots
from cpdpo_jax.sweeps.config import show_environment
from cpdpo_jax.sweeps.packing import Pack, join, packs, split
from cpdpo_jax.sweeps.provenance import rounding
from cpdpo_jax.sweeps.specification import BlockSpec, build_block, build_together, description, kind
from cpdpo_jax.sweeps.store import Store

PROBE_SECONDS = 0.3


def run_pack(
    store: Store,
    pack: Pack,
    progress: Callable[[int], None] = lambda n: None,
    stop: Callable[[], bool] = lambda: False,
    every: float = KEEP_SECONDS,
) -> bool:
    """Run blocks side by side from where their snapshots stand, or from the start, and store them; False if stopped.

    A lane that comes to a value that is not finite is NaN from there on; a pack of none but such lanes ends early.
    """
    blocks, told = pack.blocks, 0  # episodes that were reported
    while blocks:
        plan, lane = build_together(list(blocks.values()), pack.batch)
        lanes, launch = [len(block["seeds"]) for block in blocks.values()], len(lane.seed)
        width = launch if plan.on_host else next(iter(blocks.values()))["width"]
        begun = [one for key in blocks if (one := snapshots.load(store, key)) is not None]
        start = join(begun, lanes, launch, width) if len(begun) == len(blocks) else None
        if start is not None and start.episode > told:
            progress((start.episode - told) * lane.count)
        keep = functools.partial(_keep, store, list(blocks), lanes, launch, width)
        started = time.perf_counter()
        curves = run_block(
            plan, lane, lambda n, count=lane.count: progress(n * count), stop, start=start, keep=keep, every=every
        )
        seconds, told = time.perf_counter() - started, int(curves.done)
        rest = {}
        for (key, block), part in zip(blocks.items(), split(curves, lanes, launch, width), strict=True):
            bad = (part.first_bad > 0).all()
            if told == block["episodes"] or (bad and told in plan.calls):
                _finish(store, key, block, part, seconds * len(block["seeds"]) / lane.count)
            else:
                rest[key] = block
        if rest and stop():
            return False
        blocks = rest
    return True


def _keep(store: Store, keys: list[str], lanes: list[int], launch: int, width: int, snapshot: Snapshot) -> None:
    """Store how far each block of a pack has come; one that is about to end goes on from the snapshot before."""
    for key, part in zip(keys, split(snapshot, lanes, launch, width), strict=True):
        if not (part.curves.first_bad > 0).all():
            snapshots.keep(store, key, part)


def _finish(store: Store, key: str, block: BlockSpec, curves: BlockCurves, seconds: float) -> None:
    """Store a block that is done."""
    whole_plan, plan, lane = build_block(block)
    one = jax.tree.map(lambda leaf: np.asarray(leaf)[..., [block["instance"]]], whole_plan.solution)
    result = assemble([plan], [(0, lane, curves)], np.asarray(block["seeds"]), one, whole_plan.asked, seconds, False)
    label = show_environment(block["environment"])
    about = description(json.dumps(block["environment"]), block["instance"])
    result.data.attrs.update(
        environment=label, description=about, block=json.dumps(block, sort_keys=True), block_key=key,
        rounding=json.dumps(rounding()),
    )  # fmt: skip
    store.finish(key, result)


class Engine(Protocol):
    """Where packs of blocks run."""

    @property
    def workers(self) -> int:
        """How many run at once."""
        ...

    @property
    def machines(self) -> Sequence[dict[str, str]]:
        """The kinds of machine (`provenance.rounding`) that blocks were run on, beside this process's."""
        ...

    def run(self, store: Store, packs: Sequence[Pack], *, every: float, progress: bool) -> bool:
        """Run packs and store their blocks; False if stopped by Ctrl-C.

        An error in one block (a full disk, say) stops the others at their next snapshot, and is raised.
        """
        ...


def run_all(
    store: Store, blocks: dict[str, BlockSpec], engine: Engine, *, every: float = KEEP_SECONDS, quiet: bool = False
) -> bool:
    """Run every block that is not finished; False if stopped by Ctrl-C."""
    todo = {key: block for key, block in blocks.items() if not store.is_done(key)}
    begun = {key: snapshots.episodes_done(store, key) for key in todo}
    return engine.run(store, packs(todo, begun, engine.workers), every=every, progress=not quiet) if todo else True


class Probe(NamedTuple):
    """What a short measurement says of a run."""

    compilations: int
    compile_seconds: float
    run_seconds: float
    megabytes: float
    microseconds: dict[str, float]  # per seed and episode on one core, by learner and environment


def probe(blocks: dict[str, BlockSpec]) -> Probe:
    """Compile each kind of block and time a fraction of a second of it: an estimate for the whole."""
    use_compilation_cache()
    rates: dict[str, float] = {}
    seen: dict[str, float] = {}
    compiling = running = size = 0.0
    for block in blocks.values():
        program = kind(block)
        if program not in seen:
            started = time.perf_counter()
            compile_pack(block)
            compiling += time.perf_counter() - started
            seen[program] = _seconds_per_episode(block)
            name = f"{block['learner']} on {show_environment(block['environment'])}"
            rates[name] = 1e6 * seen[program] / len(build_together([block], False)[1].seed)
        _, plan, lane = build_block(block)
        m = plan.cmdp.n_constraints
        size += 60_000 + 8 * len(lane.seed) * (len(plan.checkpoints) * (4 + 5 * m) + plan.cmdp.reward.size)
    for pack in packs(blocks, dict.fromkeys(blocks, 0), how_many()):
        block = next(iter(pack.blocks.values()))
        running += seen[kind(block)] * block["episodes"]
    return Probe(len(seen), compiling, running / cores(), size / 1e6, rates)


def _seconds_per_episode(block: BlockSpec) -> float:
    """Of the whole block on one core, by doubling the number of episodes until the time can be read."""
    plan, lane = build_together([block], False)
    return _timed(plan, lane, block["episodes"])


@in_its_precision
def _timed(plan: LearnerPlan, lane: LaneIndex, episodes: int) -> float:
    phase = plan.phases[-1]
    lanes = lane_inputs(plan, lane, phase, np.asarray(plan.problem.slater_margin)[lane.instance])
    state, n = begin(phase.learner, lanes), 16
    while True:
        started = time.perf_counter()
        state = jax.block_until_ready(advance(phase.learner, plan.cmdp.noise, lanes, state, 0, n))
        spent = time.perf_counter() - started
        if spent > PROBE_SECONDS or n >= episodes:
            return spent / n
        n *= 2


_COMPILED: set[str] = set()


def compile_pack(block: BlockSpec, batch: bool = False) -> None:
    """Compile what a pack with this block runs, unless this process has done so."""
    if kind(block, batch) not in _COMPILED:
        compile_block(*build_together([block], batch))
        _COMPILED.add(kind(block, batch))
