"""Files that are whole or not there: written beside the target, synced, renamed."""

from __future__ import annotations

import os
import threading
from pathlib import Path

SUFFIX = ".unfinished"  # of the file being written; after a kill it may stay behind, and `clear` removes it


def write(path: str | os.PathLike[str], content: bytes | memoryview | str) -> None:
    """Put `content` into a file: a reader sees the old file or the new one, never half of one, even after a crash."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}{SUFFIX}")
    try:
        with open(temporary, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(target.parent)


def clear(directory: Path) -> None:
    """Remove what a killed process left unfinished in a directory."""
    for left in directory.glob(f".*{SUFFIX}"):
        left.unlink(missing_ok=True)


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
