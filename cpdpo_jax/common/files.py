"""Atomic writes (a temporary file, synced and renamed), and checksums that detect damage.

A sealed file ends in a line with the SHA-256 of everything before it. HDF5 and zip files record their own length, so
other programs ignore the line.
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import threading
from collections.abc import Callable, Container
from pathlib import Path

SUFFIX = ".unfinished"  # of temporary files; after a kill they remain, and `remove_unfinished` deletes them
_MARK = b"\ncpdpo_jax sha256 "
_SEAL_LENGTH = len(_MARK) + 64 + 1


class DamagedError(ValueError):
    """A file was changed after it was written; the message names the file and the remedy."""


def write(path: str | os.PathLike[str], content: bytes | memoryview | str) -> None:
    """Write `content` atomically: a reader sees the old or the new file, never a part of it, even after a crash."""
    target = Path(path)
    temporary = _temporary(target)
    try:
        _publish(temporary, target, content, os.replace)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(target.parent)


def create(path: str | os.PathLike[str], content: bytes | memoryview | str) -> bool:
    """`write` unless the file exists -> whether this call wrote it; only one of several concurrent calls does."""
    target = Path(path)
    temporary = _temporary(target)
    try:
        _publish(temporary, target, content, _link)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    _sync_directory(target.parent)
    return True


def is_disk_full(error: BaseException) -> bool:
    """Whether an error means that there was no space for a file: a full disk, a quota, or a size limit."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def seal(content: bytes) -> bytes:
    """The content followed by its seal."""
    return content + _MARK + hashlib.sha256(content).hexdigest().encode() + b"\n"


def unseal(content: bytes) -> bytes | None:
    """The content without its seal; None if there is no seal. A wrong seal raises DamagedError without a file name."""
    body, line = content[:-_SEAL_LENGTH], content[-_SEAL_LENGTH:]
    if not line.startswith(_MARK):
        return None
    if line != seal(body)[-_SEAL_LENGTH:]:
        raise DamagedError("its content does not match its checksum")
    return body


def remove_unfinished(directory: Path, names: Container[str] | None = None) -> None:
    """Delete the temporary files of killed processes in a directory; with `names`, only those of these targets."""
    for temporary in directory.glob(f".*{SUFFIX}"):
        target = temporary.name[1:].rsplit(".", 4)[0]  # see `_temporary`
        if names is None or target in names:
            temporary.unlink(missing_ok=True)


def _temporary(target: Path) -> Path:
    """The temporary path of a target; it differs between threads, processes and machines."""
    host = "".join(letter if letter.isalnum() else "-" for letter in socket.gethostname())
    return target.with_name(f".{target.name}.{host}.{os.getpid()}.{threading.get_ident()}{SUFFIX}")


def _publish(
    temporary: Path, target: Path, content: bytes | memoryview | str, move: Callable[[Path, Path], None]
) -> None:
    """Write the temporary file and move it to the target.

    Where locks are lost, another process may take the file for that of a killed process and remove it
    (`remove_unfinished`); it is then written again.
    """
    for attempts_left in reversed(range(10)):
        try:
            _write_synced(temporary, content)
        except FileNotFoundError:
            message = f"'{target}' cannot be written: folder '{target.parent}' does not exist; create it first."
            raise FileNotFoundError(message) from None
        try:
            return move(temporary, target)
        except FileNotFoundError:
            if not attempts_left:
                raise


def _link(temporary: Path, target: Path) -> None:
    """Give the temporary file the target's name; FileExistsError if another file has it."""
    try:
        os.link(temporary, target)
    except (FileExistsError, FileNotFoundError):
        raise
    except OSError:  # the file system has no hard links
        if target.exists():
            raise FileExistsError from None
        os.replace(temporary, target)


def _write_synced(path: Path, content: bytes | memoryview | str) -> None:
    with open(path, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(directory: Path) -> None:
    """Make a rename durable; skipped on systems that cannot open directories."""
    try:
        handle = os.open(directory, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
