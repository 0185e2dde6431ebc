"""Who runs in a directory: one process for all of it, or several for a shard each, and none of them waits.

    lock              held alone by a run of everything, together by shards
    lock-0-of-3       held by the process that runs shard 0/3

The system lets go of a lock when its process ends, however it ends. What a lock file says is for people.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cpdpo_jax.sweeps.shards import Shard

WHOLE = "lock"
HELD = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)  # another process has it; else there are no locks here
PATIENCE = 5  # tries, 0.05 s apart: somebody who only looks holds a lock for an instant


def is_lock(name: str) -> bool:
    """Whether a file of a run directory is a lock."""
    return re.fullmatch(rf"{WHOLE}(-\d+-of-\d+)?", name) is not None


@contextmanager
def locked(directory: Path, shard: Shard | None = None) -> Iterator[None]:
    """Be the only process that runs here, or that runs this shard; ValueError with who does."""
    with ExitStack() as stack:
        stack.enter_context(_directory_held(directory, fcntl.LOCK_EX if shard is None else fcntl.LOCK_SH))
        if shard is None:
            stack.enter_context(_held(directory, WHOLE, fcntl.LOCK_EX))
            _refuse_shards(directory, None)
        else:
            stack.enter_context(_held(directory, WHOLE, fcntl.LOCK_SH))
            _refuse_shards(directory, shard)
            stack.enter_context(_held(directory, shard.lock, fcntl.LOCK_EX, f"shard {shard}: "))
        yield


def holders(directory: Path) -> list[str]:
    """Who runs here now."""
    found = []
    for name in (WHOLE, *_shard_locks(directory)):
        try:
            with open(directory / name) as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except OSError as error:
                    if error.errno in HELD:
                        found.append(file.read().strip() or "another process")
        except FileNotFoundError:
            continue
    return found


def _shard_locks(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob(f"{WHOLE}-*") if is_lock(path.name))


def _refuse_shards(directory: Path, shard: Shard | None) -> None:
    """Shards of another number of shards would run the same blocks."""
    for name in _shard_locks(directory):
        if shard is None or not name.endswith(f"-of-{shard.count}"):
            with _held(directory, name, fcntl.LOCK_EX):
                pass


@contextmanager
def _directory_held(directory: Path, kind: int) -> Iterator[None]:
    """The directory itself, which cannot be deleted while it is in use, as a lock file can; not all systems can."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        for left in reversed(range(PATIENCE)):
            try:
                fcntl.flock(handle, kind | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in HELD:
                    break
                if not left:
                    who = " and ".join(holders(directory)) or "another process, whose lock file was deleted"
                    raise ValueError(f"{directory} is being run by {who}; wait for it, or end it first.") from error
                time.sleep(0.05)
        yield
    finally:
        os.close(handle)


@contextmanager
def _held(directory: Path, name: str, kind: int, label: str = "") -> Iterator[None]:
    with open(directory / name, "a+") as file:
        _take(file, kind, directory)
        if kind == fcntl.LOCK_EX:
            file.truncate(0)
            file.write(f"{label}process {os.getpid()} on {socket.gethostname()}")
            file.flush()
        yield
        if kind == fcntl.LOCK_EX:
            file.truncate(0)


def _take(file: Any, kind: int, directory: Path) -> None:
    for left in reversed(range(PATIENCE)):
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in HELD:
                raise ValueError(
                    f"the file system of {directory} cannot lock files ({error.strerror}), which keeps two processes "
                    "from running the same blocks; give an --out elsewhere, or --no-lock if nobody else runs there."
                ) from error
            if not left:
                file.seek(0)
                holder = file.read().strip() or " and ".join(holders(directory)) or "another process"
                raise ValueError(f"{directory} is being run by {holder}; wait for it, or end it first.") from error
            time.sleep(0.05)
        else:
            return
