"""A little room kept back, so that objects can be removed when the disk is full."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["Reserve"]

_SIZE = 4 << 20


class Reserve:
    """A file that only takes up space: deleting an object is a write to the index and needs some."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_filled = False
        self.refill()

    def release(self) -> None:
        """Give the room to whoever writes next."""
        self._is_filled = False
        try:
            os.truncate(self._path, 0)
        except OSError:
            pass

    def refill(self) -> None:
        """Take the room back, if the disk has it."""
        if self._is_filled:
            return
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return
        try:
            if os.fstat(file).st_size < _SIZE:
                os.posix_fallocate(file, 0, _SIZE)
            self._is_filled = True
        except OSError:
            # A reserve in part would be room that nobody can use.
            os.ftruncate(file, 0)
        finally:
            os.close(file)
