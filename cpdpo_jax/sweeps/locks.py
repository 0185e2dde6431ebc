"""Locks of a run directory: one process runs all of it, or several run one shard each; none of them waits.

    lock              exclusive for a run of all blocks, shared between shards
    lock-0-of-3       held by the process that runs shard 0/3

The operating system releases a lock when its process ends. The text in a lock file names the process.
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
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cpdpo_jax.sweeps.shards import Shard

RUN_LOCK = "lock"
HELD = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)  # another process holds it; other errors: no locks supported
ATTEMPTS = 5  # 0.05 s apart, because `holders` takes a lock for an instant


def is_lock(name: str) -> bool:
    """Whether a file of a run directory is a lock."""
    return re.fullmatch(rf"{RUN_LOCK}(-\d+-of-\d+)?", name) is not None


@contextmanager
def locked(directory: Path, shard: Shard | None = None) -> Iterator[None]:
    """Hold the lock of the directory or of a shard; ValueError names the process that already holds it."""
    with ExitStack() as stack:
        stack.enter_context(_directory_held(directory, fcntl.LOCK_EX if shard is None else fcntl.LOCK_SH))
        if shard is None:
            stack.enter_context(_held(directory, RUN_LOCK, fcntl.LOCK_EX))
            _refuse_shards(directory, None)
        else:
            stack.enter_context(_held(directory, RUN_LOCK, fcntl.LOCK_SH))
            _refuse_shards(directory, shard)
            stack.enter_context(_held(directory, shard.lock, fcntl.LOCK_EX, f"shard {shard}: "))
        yield


def holders(directory: Path) -> list[str]:
    """The processes that hold a lock now."""
    processes = []
    for name in (RUN_LOCK, *_shard_locks(directory)):
        try:
            with open(directory / name) as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except OSError as error:
                    if error.errno in HELD:
                        processes.append(file.read().strip() or "another process")
        except FileNotFoundError:
            continue
    return processes


def _shard_locks(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob(f"{RUN_LOCK}-*") if is_lock(path.name))


def _refuse_shards(directory: Path, shard: Shard | None) -> None:
    """Raise if a shard of a different number of shards is running, because it runs some of the same blocks."""
    for name in _shard_locks(directory):
        if shard is None or not name.endswith(f"-of-{shard.count}"):
            with _held(directory, name, fcntl.LOCK_EX):
                pass


@contextmanager
def _directory_held(directory: Path, kind: int) -> Iterator[None]:
    """Lock the directory itself, since a lock file may be deleted; skipped where the file system cannot do it."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        try:
            taken = _take(handle, kind)
        except OSError:
            taken = True
        if not taken:
            raise _busy(directory, "", "another process, whose lock file was deleted")
        yield
    finally:
        os.close(handle)


@contextmanager
def _held(directory: Path, name: str, kind: int, label: str = "") -> Iterator[None]:
    with open(directory / name, "a+") as file:
        try:
            taken = _take(file.fileno(), kind)
        except OSError as error:
            raise ValueError(
                f"the file system of {directory} cannot lock files ({error.strerror}), so two processes could run "
                "the same blocks; give an --out elsewhere, or --no-lock if no other process runs there."
            ) from error
        if not taken:
            file.seek(0)
            raise _busy(directory, file.read().strip(), "another process")
        if kind == fcntl.LOCK_EX:
            file.truncate(0)
            file.write(f"{label}process {os.getpid()} on {socket.gethostname()}")
            file.flush()
        yield
        if kind == fcntl.LOCK_EX:
            file.truncate(0)


def _take(handle: int, kind: int) -> bool:
    """Whether the lock was taken; False: another process holds it. OSError where locks are not supported."""
    for _ in range(ATTEMPTS):
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno not in HELD:
                raise
        time.sleep(0.05)
    return False


def _busy(directory: Path, holder: str, unknown: str) -> ValueError:
    holder = holder or " and ".join(holders(directory)) or unknown
    return ValueError(f"{directory} is being run by {holder}; wait for it, or end it first.")
