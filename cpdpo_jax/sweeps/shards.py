"""Shards of a run, for job arrays: `--shard 2/16` runs every sixteenth block, starting with the third.

Blocks are ordered by their keys, which are hashes, so every shard has a similar mix. Shards are independent of each
other; they may write into one directory or into several.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from cpdpo_jax.common.text import shown


class Shard(NamedTuple):
    """Shard `index` (from 0) of `count`."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @property
    def lock(self) -> str:
        """The file name of the shard's lock."""
        return f"lock-{self.index}-of-{self.count}"

    def select(self, blocks: dict[str, Any]) -> dict[str, Any]:
        """The blocks of the shard."""
        return {key: blocks[key] for key in sorted(blocks)[self.index :: self.count]}


def parse(text: str | None) -> Shard | None:
    """The shard of a text such as "0/3", the first of three; None for an empty text."""
    if not text:
        return None
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
    if not match or not int(match[1]) < int(match[2]):
        raise ValueError(f"shard = {shown(text)} is not I/N with I from 0 to N-1; give 0/3, 1/3 or 2/3.")
    return Shard(int(match[1]), int(match[2]))
