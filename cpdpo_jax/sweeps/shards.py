"""A part of a run for one job of an array: `--shard 2/16` runs every sixteenth block, from the third on.

Blocks are taken in the order of their keys, which are hashes: every shard has its share of every kind. Shards need
nothing of one another; they may write into one directory or into several.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple


class Shard(NamedTuple):
    """Shard `index` (from 0) of `count`."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @property
    def lock(self) -> str:
        """The name of its lock."""
        return f"lock-{self.index}-of-{self.count}"

    def of(self, blocks: dict[str, Any]) -> dict[str, Any]:
        """Its blocks."""
        return {key: blocks[key] for key in sorted(blocks)[self.index :: self.count]}


def parse(text: str | None) -> Shard | None:
    """'0/3' -> the first of three; nothing: no shard."""
    if not text:
        return None
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
    if not found or not int(found[1]) < int(found[2]):
        raise ValueError(f"shard = {text!r} is not I/N with I from 0 to N-1, such as 0/3, 1/3 and 2/3.")
    return Shard(int(found[1]), int(found[2]))
