"""`cpdpo bench`: how fast the simulator is, beside a hand-written anchor and naive programs, and where the time goes.

Imported by the command only. Each measurement runs in a process of its own (`simulator.Worker`).
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpdpo_jax.cli.bench import anchor as anchors
from cpdpo_jax.cli.bench import gpu, parts, tables
from cpdpo_jax.cli.bench.simulator import Size, Worker, instance
from cpdpo_jax.common.machine import cores

if TYPE_CHECKING:
    from cpdpo_jax.cli.arguments import Bench

SIZES = (
    (3, 3, 2, 1), (5, 5, 3, 2), (4, 7, 2, 3), (12, 4, 3, 1), (8, 8, 4, 2), (10, 10, 4, 2), (20, 20, 5, 1),
)  # fmt: skip
SEEDS = (8, 64, 512)
QUICK_SIZES, QUICK_SEEDS, QUICK_SECONDS = ((3, 3, 2, 1), (5, 5, 3, 2)), (8, 64), 0.2
PARTS = ("speed", "naive", "baselines", "flame", "device")
TARGET_SIZES = ((5, 5, 3, 2), (10, 10, 4, 2))  # compiled for a GPU
LEARNERS = ("cpdpo", "cpd_oppo")
LANES = 64  # of the block that is taken apart, and seeds of the naive and baseline rows


def run(asked: Bench) -> int:
    """Measure what was asked, part by part; a table each, or one JSON of all."""
    sizes = [_size(text) for text in asked.sizes] or [Size(*size) for size in (QUICK_SIZES if asked.quick else SIZES)]
    seeds = [_count("seeds", text) for text in asked.seeds] or list(QUICK_SEEDS if asked.quick else SEEDS)
    seconds = asked.seconds or (QUICK_SECONDS if asked.quick else 1.0)
    if not 0 < seconds < 1000:
        raise ValueError(f"seconds = {seconds:g} is not a time to measure for; give a number from 0.01 to 1000.")
    chosen = _parts(asked)
    if asked.target:
        gpu.check(asked.target)
    sources = anchors.sources(asked.anchor)
    for size in sizes:
        instance(size)  # a size without an instance is told before anything is measured
    answer: dict[str, Any] = {"machine": _machine()}
    if not asked.json:
        print(tables.machine(answer["machine"]))
    for name in chosen:
        answer[name] = _MEASURE[name](asked, sizes, seeds, sources, seconds)
        _say("")
        if not asked.json:
            print("\n" + tables.TABLES[name](answer), flush=True)
    if asked.json:
        print(json.dumps(answer))
    return 0


def _parts(asked: Bench) -> list[str]:
    for name in asked.part:
        if name not in PARTS:
            raise ValueError(f"part = {name!r} is not known; choose from {', '.join(PARTS)}.")
    extra = [name for name in ("scaling", "memory") if getattr(asked, name)]
    return [*asked.part, *extra] or list(PARTS)


def _size(text: str) -> Size:
    numbers = text.strip("()").split(",")
    if len(numbers) != 4 or not all(one.strip().isdecimal() and int(one) > 0 for one in numbers):
        raise ValueError(
            f"sizes = {text!r} is not LAYERS,STATES,ACTIONS,CONSTRAINTS; give four whole numbers such as 5,5,3,2."
        )
    return Size(*map(int, numbers))


def _count(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{name} = {text!r} is not a whole number of at least 1.")
    return int(text)


def _machine() -> dict[str, Any]:
    from importlib import metadata

    processor = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next(line.partition(": ")[2] for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    pinned = hasattr(os, "sched_setaffinity")
    return {"processor": processor, "cores": cores(), "pinned": pinned, "load_at_start": load,
            "python": platform.python_version(), "jax": metadata.version("jax")}  # fmt: skip


def _say(text: str) -> None:
    """What is measured now, for a person who waits; nothing wipes the line."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def _speed(asked: Bench, sizes: list[Size], seeds: list[int], sources: dict[str, Path], seconds: float) -> Any:
    learners = list(asked.learner or LEARNERS)
    return parts.speed(learners, sizes, seeds, sources, seconds=seconds, cold=not asked.quick, say=_say)


def _naive(asked: Bench, sizes: list[Size], seeds: list[int], sources: dict[str, Path], seconds: float) -> Any:
    return parts.naively(sizes, LANES, seconds=seconds, say=_say)


def _baselines(asked: Bench, sizes: list[Size], seeds: list[int], sources: dict[str, Path], seconds: float) -> Any:
    from cpdpo_jax import learners

    known = [learners.get(name) for name in learners.names()]
    names = [one.name for one in known if one.plays is None and one.most_constraints is None]  # sizes have several
    return parts.baselines(names, LANES, not asked.quick, seconds=seconds, say=_say)


def _flame(asked: Bench, sizes: list[Size], seeds: list[int], sources: dict[str, Path], seconds: float) -> Any:
    from cpdpo_jax.cli.bench.flame import flame

    told = []
    for learner in asked.learner or LEARNERS:
        _say(f"flame: {learner}")
        with Worker(1) as worker:
            told.append(worker(flame, learner, parts.MIDDLE, LANES, seconds / 4))
    return told


def _device(asked: Bench, sizes: list[Size], seeds: list[int], sources: dict[str, Path], seconds: float) -> Any:
    from cpdpo_jax.cli.bench.device import device

    if asked.target:
        return _on_target(asked, sizes, seeds)
    _say("device")
    with Worker(cores()) as worker:
        return worker(device, parts.MIDDLE, LANES)


def _on_target(asked: Bench, sizes: list[Size], seeds: list[int]) -> list[dict[str, Any]]:
    rows = []
    for size in sizes if asked.sizes else [Size(*size) for size in TARGET_SIZES]:
        for learner in asked.learner or LEARNERS:
            for lanes in seeds if asked.seeds else [gpu.LANES]:
                _say(f"device: {learner}, {size} for {asked.target}")
                rows.append(gpu.report(size, lanes, learner, asked.target))
    return rows


def _scaling(asked: Bench, sizes: list[Size], seeds: list[int], sources: dict[str, Path], seconds: float) -> Any:
    chosen = tuple(seeds) if asked.seeds else parts.SCALING_SEEDS
    return parts.scaling(chosen, seconds=seconds, say=_say)


def _memory(asked: Bench, sizes: list[Size], seeds: list[int], sources: dict[str, Path], seconds: float) -> Any:
    episodes = tuple(n // 10 for n in parts.MEMORY_EPISODES) if asked.quick else parts.MEMORY_EPISODES
    return parts.memory(LANES, episodes, say=_say)


_MEASURE: dict[str, Callable] = {
    "speed": _speed,
    "naive": _naive,
    "baselines": _baselines,
    "flame": _flame,
    "device": _device,
    "scaling": _scaling,
    "memory": _memory,
}
