"""Blocks side by side: several of one kind run as one, so that few seeds do not pay for a whole block's lanes.

A pack has as many lanes as a block is wide; on an accelerator, which wants thousands, as many as a launch has there.
The bits of a lane do not depend on its neighbours, so a block's file and its snapshots are the same whether it was run
in a pack or by itself, and either can go on from the other's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from cpdpo_jax.kernels.target import for_accelerator, target_platform
from cpdpo_jax.simulation.blocks import Snapshot
from cpdpo_jax.simulation.curves import BlockCurves
from cpdpo_jax.simulation.lanes import lanes_that_fit_in_words
from cpdpo_jax.simulation.options import OPTION_NAMES
from cpdpo_jax.sweeps.config import show_environment
from cpdpo_jax.sweeps.specification import BlockSpec, has_instances, launch_width, on_host, shape_of


class Pack(NamedTuple):
    """Blocks that run as one: they differ in instance, setting and seeds alone."""

    blocks: dict[str, BlockSpec]
    batch: bool  # lanes of several instances; the same for all packs of a kind, which run one program

    @property
    def lanes(self) -> int:
        """How many are real."""
        return sum(len(block["seeds"]) for block in self.blocks.values())

    @property
    def work(self) -> int:
        """Episodes times lanes."""
        return self.lanes * next(iter(self.blocks.values()))["episodes"]

    @property
    def label(self) -> str:
        """For people."""
        block = next(iter(self.blocks.values()))
        return f"{block['learner']} on {block['environment']['name']}"


def lanes_in_words(blocks: dict[str, BlockSpec]) -> list[str]:
    """How many lanes a launch has for every learner and environment of a run, and why."""
    told = {}
    for block in blocks.values():
        width, name = launch_width(block), f"{block['learner']} on {show_environment(block['environment'])}"
        if on_host(block):
            why = "one after the other, on the host"
        elif for_accelerator():
            why = f"packs of blocks; {lanes_that_fit_in_words(shape_of(block), target_platform())}"
        else:
            why = f"a block's, as block = {block['width']} says: a CPU has a launch for every core"
        told[f"{name}: {width:,} lanes a launch ({why})"] = None
    return list(told)


def packs(blocks: dict[str, BlockSpec], begun: dict[str, int], workers: int) -> list[Pack]:
    """All blocks in packs of up to a launch's lanes, but not so full that a worker would have none.

    `begun`: the episode at which each block's snapshot stands; only those that stand at the same one run together.
    """
    share = math.ceil(sum(len(block["seeds"]) for block in blocks.values()) / workers)
    kinds: dict[str, list[str]] = {}
    for key, block in blocks.items():
        alone = key if on_host(block) else ""  # lane by lane: nothing to gain
        same = {name: block[name] for name in ("learner", "environment", "episodes", "width", *OPTION_NAMES)}
        kinds.setdefault(json.dumps([alone, begun[key], same], sort_keys=True), []).append(key)
    found = []
    for keys in kinds.values():
        filled = _fill({key: blocks[key] for key in keys}, min(launch_width(blocks[keys[0]]), share))
        batch = any(len({block["instance"] for block in one.values()}) > 1 for one in filled)
        if for_accelerator():  # one program, whatever is left to run
            batch = has_instances(blocks[keys[0]])
        found += [Pack(one, batch) for one in filled]
    return found


def _fill(blocks: dict[str, BlockSpec], most: int) -> list[dict[str, BlockSpec]]:
    """Each block to the first pack that has room for it, one instance after the other."""
    filled: list[dict[str, BlockSpec]] = []
    room: list[int] = []
    for key in sorted(blocks, key=lambda key: blocks[key]["instance"]):
        lanes = len(blocks[key]["seeds"])
        at = next((i for i, free in enumerate(room) if free >= lanes), len(room))
        if at == len(room):
            filled.append({})
            room.append(most)
        filled[at][key] = blocks[key]
        room[at] -= lanes
    return filled


def split(whole: Any, lanes: Iterable[int], launch: int, width: int) -> list[Any]:
    """The curves or the snapshot of a pack of `launch` lanes, block by block.

    Each part has its own lanes, the last repeated up to `width`: what the block would have left by itself.
    """
    parts, first = [], 0
    for count in lanes:
        at = first + np.minimum(np.arange(width), count - 1)
        parts.append(_mapped(lambda leaf, at=at: leaf[..., at] if _has_lanes(leaf, launch) else leaf.copy(), whole))
        first += count
    return parts


def join(parts: Sequence[Snapshot], lanes: Sequence[int], launch: int, width: int) -> Snapshot:
    """The snapshot of a pack from those of its blocks, which stand at one episode: the inverse of `split`."""
    at = np.concatenate([i * width + np.arange(count) for i, count in enumerate(lanes)])
    at = at[np.minimum(np.arange(launch), len(at) - 1)]

    def joined(*leaves: np.ndarray) -> np.ndarray:
        return np.concatenate(leaves, axis=-1)[..., at] if _has_lanes(leaves[0], width) else leaves[0]

    return _mapped(joined, *parts)


def _mapped(function: Any, *trees: Any) -> Any:
    """Leaf by leaf through snapshots or curves; the episode stays."""
    first = trees[0]
    if isinstance(first, BlockCurves):
        return BlockCurves(*(function(*leaves) for leaves in zip(*trees, strict=True)))
    return Snapshot(
        first.episode,
        function(*(tree.believed for tree in trees)),
        _mapped(function, *(tree.curves for tree in trees)),
        [function(*leaves) for leaves in zip(*(tree.state for tree in trees), strict=True)],
    )


def _has_lanes(leaf: np.ndarray, width: int) -> bool:
    return leaf.ndim > 0 and leaf.shape[-1] == width
