"""Packs: blocks that run the same program run together, so that blocks of few seeds do not waste lanes on padding.

A pack has the lanes of one block on a CPU, or of one vector where no more are needed, and of one launch (thousands) on
an accelerator. Lanes are independent of each other bit for bit, so a block's file and snapshots are the same in a pack
and alone, and either resumes the other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from cpdpo_jax.kernels.machines import programs
from cpdpo_jax.simulation.blocks import Snapshot
from cpdpo_jax.simulation.options import OPTION_NAMES
from cpdpo_jax.sweeps.config_text import environment_label
from cpdpo_jax.sweeps.specification import (
    BlockSpec,
    fits_narrow,
    has_instances,
    launch_width,
    mdp_shape,
    program_key,
    runs_on_host,
)


class Pack(NamedTuple):
    """Blocks that run together; they differ only in instance, hparams and seeds."""

    blocks: dict[str, BlockSpec]
    batch: bool  # lanes have their own instances; equal in all packs that run the same program
    narrow: bool = False  # one vector holds all lanes; equal in all packs that run the same program

    @property
    def first(self) -> BlockSpec:
        """The first block."""
        return next(iter(self.blocks.values()))

    @property
    def program(self) -> str:
        """Equal for packs that run the same compiled program."""
        return program_key(self.first, self.batch, self.narrow)

    @property
    def lanes(self) -> int:
        """The number of lanes without padding."""
        return sum(len(block["seeds"]) for block in self.blocks.values())

    @property
    def work(self) -> int:
        """Episodes times lanes."""
        return self.lanes * self.first["episodes"]

    @property
    def label(self) -> str:
        """The pack's name in the progress bar."""
        return f"{self.first['learner']} on {self.first['environment']['name']}"


def describe_lanes(packs: Sequence[Pack]) -> list[str]:
    """The number of lanes per launch for every learner and environment of a run, and the reason."""
    lines = {}
    for pack in packs:
        block, width = pack.first, launch_width(pack.first, pack.narrow)
        name = f"{block['learner']} on {environment_label(block['environment'])}"
        if runs_on_host(block):
            reason = "sequential, on the host"
        elif pack.narrow:
            reason = "one vector holds all lanes; a CPU runs one launch per core"
        else:
            reason = programs.describe_launch(block["width"], mdp_shape(block))
        lines[f"{name}: {width:,} lanes per launch ({reason})"] = None
    return list(lines)


def make_packs(blocks: dict[str, BlockSpec], begun: dict[str, int], workers: int) -> list[Pack]:
    """All blocks in packs of up to one launch, but small enough that every worker gets a pack.

    `begun`: the episode of each block's snapshot (0: none); only blocks at the same episode run together.
    """
    share = math.ceil(sum(len(block["seeds"]) for block in blocks.values()) / workers)
    kinds: dict[str, list[str]] = {}
    for key, block in blocks.items():
        alone = key if runs_on_host(block) else ""  # sequential: nothing to gain
        same = {name: block.get(name) for name in ("learner", "environment", "episodes", "width", *OPTION_NAMES)}
        kinds.setdefault(json.dumps([alone, begun[key], same], sort_keys=True), []).append(key)
    packs = []
    for keys in kinds.values():
        filled = _fill({key: blocks[key] for key in keys}, min(launch_width(blocks[keys[0]]), share))
        batch = any(len({block["instance"] for block in group.values()}) > 1 for group in filled)
        if programs.runs_wide_launches():  # the same program, whatever is left to run
            batch = has_instances(blocks[keys[0]])
        most = max(sum(len(block["seeds"]) for block in group.values()) for group in filled)
        narrow = fits_narrow(blocks[keys[0]], most)
        packs += [Pack(group, batch, narrow) for group in filled]
    return packs


def _fill(blocks: dict[str, BlockSpec], capacity: int) -> list[dict[str, BlockSpec]]:
    """First-fit packing of blocks into groups of up to `capacity` lanes, in the order of their instances."""
    filled: list[dict[str, BlockSpec]] = []
    room: list[int] = []
    for key in sorted(blocks, key=lambda key: blocks[key]["instance"]):
        lanes = len(blocks[key]["seeds"])
        group = next((i for i, free in enumerate(room) if free >= lanes), len(room))
        if group == len(room):
            filled.append({})
            room.append(capacity)
        filled[group][key] = blocks[key]
        room[group] -= lanes
    return filled


def split(pack: Any, lanes: Iterable[int], launch: int, width: int) -> list[Any]:
    """Split the curves or the snapshot of a pack of `launch` lanes into those of its blocks.

    Each part has its block's lanes, the last one repeated up to `width`, as if the block had run alone.
    """
    parts, first = [], 0
    for count in lanes:
        index = first + np.minimum(np.arange(width), count - 1)
        parts.append(_map(lambda leaf, i=index: leaf[..., i] if _has_lanes(leaf, launch) else leaf.copy(), pack))
        first += count
    return parts


def join(parts: Sequence[Snapshot], lanes: Sequence[int], launch: int, width: int) -> Snapshot:
    """Join the snapshots of blocks at the same episode into that of a pack: the inverse of `split`."""
    index = np.concatenate([i * width + np.arange(count) for i, count in enumerate(lanes)])
    index = index[np.minimum(np.arange(launch), len(index) - 1)]

    def joined(*leaves: np.ndarray) -> np.ndarray:
        return np.concatenate(leaves, axis=-1)[..., index] if _has_lanes(leaves[0], width) else leaves[0]

    return _map(joined, *parts)


def _map(function: Any, *trees: Any) -> Any:
    """Apply a function to all arrays of snapshots or curves."""
    return jax.tree.map(lambda first, *rest: first if isinstance(first, int) else function(first, *rest), *trees)


def _has_lanes(leaf: np.ndarray, width: int) -> bool:
    return leaf.ndim > 0 and leaf.shape[-1] == width
