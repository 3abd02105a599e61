"""Reading a part of a file, and copying a whole one by the fastest way the kernel knows."""

from __future__ import annotations

import errno
import hashlib
import io
import os
from pathlib import Path
from typing import Any

from trainshed.store.file_copy import copy_in_steps

__all__ = ["FileWindow", "copy_file", "copy_range", "digest_file"]

_CHUNK = 1 << 20


class FileWindow(io.RawIOBase):
    """The bytes of an open file from `start` to `end`, as a file of its own that owns the descriptor."""

    def __init__(self, file: int, start: int, end: int) -> None:
        self._file = file
        self._start = start
        self._end = max(start, end)
        self._at = start

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def fileno(self) -> int:
        """The descriptor of the whole file."""
        return self._file

    def readinto(self, buffer: Any, /) -> int:
        """Read as much as fits, 0 at the end."""
        view = memoryview(buffer)[: max(0, self._end - self._at)]
        count = os.preadv(self._file, [view], self._at) if view else 0
        self._at += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move within the window."""
        base = {os.SEEK_SET: self._start, os.SEEK_CUR: self._at, os.SEEK_END: self._end}[whence]
        self._at = max(self._start, base + offset)
        return self._at - self._start

    def tell(self) -> int:
        """Where the next read begins, counted from the window's start."""
        return self._at - self._start

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            os.close(self._file)
        super().close()


def copy_file(source: int, target: int, size: int) -> None:
    """Copy `size` bytes to the target's position: shared extents where the file system can, else in the kernel."""
    copy_range(source, 0, target, size)


def copy_range(source: int, start: int, target: int, size: int) -> None:
    """Copy `size` bytes from `start` on to the target's position, in the same way."""
    copy_in_steps(source, target, size, start=start)


def digest_file(path: Path, size: int) -> str:
    """The MD5 of a file's first bytes."""
    md5 = hashlib.md5(usedforsecurity=False)
    with path.open("rb", buffering=0) as file:
        while size > 0:
            data = file.read(min(size, _CHUNK))
            if not data:
                raise OSError(errno.EIO, "the file is too short")
            md5.update(data)
            size -= len(data)
    return md5.hexdigest()
