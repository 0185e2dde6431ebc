"""Temporary directories for code that another machine sent.

A process removes its own when it ends. After a kill they stay, and the next process that receives code removes them:
a directory that nobody has locked is abandoned. The operating system releases the lock of a process that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

PREFIX = "cpdpo-import-"
GRACE = 600  # seconds in which a new directory may not be locked yet


class CodeDirectory:
    """A locked temporary directory."""

    def __init__(self) -> None:
        remove_abandoned()
        self._directory = tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True)
        self.path = Path(self._directory.name)
        self._handle = os.open(self.path, os.O_RDONLY)
        with contextlib.suppress(OSError):  # without locks, `remove_abandoned` cannot take it either
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def remove(self) -> None:
        """Remove the directory before the process ends."""
        self._directory.cleanup()
        os.close(self._handle)


def remove_abandoned() -> None:
    """Remove this user's directories whose process has ended without doing so."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, removed meanwhile, or in use
            if path.stat().st_uid != os.getuid() or abs(time.time() - path.stat().st_mtime) < GRACE:
                continue
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(handle)
