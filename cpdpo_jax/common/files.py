"""Files that are whole or not there: written beside the target, synced, renamed. And sealed, so that damage is seen.

A sealed file ends in a line with the SHA-256 of all before it. The line stands behind the end that HDF5 and zip files
know of themselves, so that other programs read them as if it were not there.
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import threading
from collections.abc import Container
from pathlib import Path

SUFFIX = ".unfinished"  # of the file being written; after a kill it may stay behind, and `clear` removes it
_MARK = b"\ncpdpo_jax sha256 "
_SEAL_LENGTH = len(_MARK) + 64 + 1


class DamagedError(ValueError):
    """A file is not what was written: the message names it and says what can be done."""


def write(path: str | os.PathLike[str], content: bytes | memoryview | str) -> None:
    """Put `content` into a file: a reader sees the old file or the new one, never half of one, even after a crash."""
    target = Path(path)
    temporary = _temporary(target)
    try:
        try:
            _write_synced(temporary, content)
        except FileNotFoundError:
            told = f"'{target}' cannot be written: there is no folder '{target.parent}'; make it first."
            raise FileNotFoundError(told) from None
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(target.parent)


def create(path: str | os.PathLike[str], content: bytes | memoryview | str) -> bool:
    """`write`, unless the file is there: of several processes that call this at once one writes; whether it was us."""
    target = Path(path)
    temporary = _temporary(target)
    try:
        _write_synced(temporary, content)
        try:
            os.link(temporary, target)
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            if target.exists():
                return False
            os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_directory(target.parent)
    return True


def is_full(error: BaseException) -> bool:
    """Whether there was no room for a file: a full disk, a quota, a limit on the size of files."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def sealed(content: bytes) -> bytes:
    """The content with its seal."""
    return content + _MARK + hashlib.sha256(content).hexdigest().encode() + b"\n"


def unsealed(content: bytes) -> bytes | None:
    """What was sealed; None if there is no seal, DamagedError (without the file's name) if it is not this content's."""
    body, seal = content[:-_SEAL_LENGTH], content[-_SEAL_LENGTH:]
    if not seal.startswith(_MARK):
        return None
    if seal != sealed(body)[-_SEAL_LENGTH:]:
        raise DamagedError("its content does not have the checksum it was written with")
    return body


def clear(directory: Path, names: Container[str] | None = None) -> None:
    """Remove what a killed process left unfinished in a directory; `names`: only of files of these names."""
    for left in directory.glob(f".*{SUFFIX}"):
        target = left.name[1:].rsplit(".", 4)[0]  # see `_temporary`
        if names is None or target in names:
            left.unlink(missing_ok=True)


def _temporary(target: Path) -> Path:
    """Where a file is written first: threads, processes and machines that write one file do not meet."""
    host = "".join(letter if letter.isalnum() else "-" for letter in socket.gethostname())
    return target.with_name(f".{target.name}.{host}.{os.getpid()}.{threading.get_ident()}{SUFFIX}")


def _write_synced(path: Path, content: bytes | memoryview | str) -> None:
    with open(path, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(directory: Path) -> None:
    """Make a rename last; some systems cannot open a directory, and then do without."""
    try:
        handle = os.open(directory, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
