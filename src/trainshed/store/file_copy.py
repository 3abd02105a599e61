"""Copying a file's bytes in steps, by the fastest way the kernel knows, so that a copy can be watched and ended."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from trainshed.model.errors import Unavailable

__all__ = ["copy_in_steps"]

_STEP = 64 << 20
_CHUNK = 1 << 20
_NOT_BY_KERNEL = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF}


def copy_in_steps(
    source: int, target: int, size: int, tick: Callable[[int], None] | None = None, *, start: int = 0
) -> None:
    """Copy `size` bytes from `start` on to the target's position: shared extents where the file system can, else
    within the kernel. `tick` is told of every step, and ends the copy by raising."""
    done, by_kernel = 0, True
    while done < size:
        count = 0
        if by_kernel:
            try:
                count = os.copy_file_range(source, target, min(size - done, _STEP), offset_src=start + done)
            except OSError as error:
                if error.errno not in _NOT_BY_KERNEL:
                    raise
            by_kernel = count > 0
        if not count:
            data = os.pread(source, min(size - done, _CHUNK), start + done)
            if not data:
                raise Unavailable(
                    "An object's file is shorter than it was when it was stored.",
                    hint="Ask an administrator to check the store's disk, and upload the object again.",
                    code="blob_damaged",
                )
            view = memoryview(data)
            while view:
                view = view[os.write(target, view) :]
            count = len(data)
        done += count
        if tick is not None:
            tick(count)
