"""Proof of life by a lock: held by a process from before it starts until it is gone.

The lock belongs to the open file description (an OFD lock): whoever starts a runner takes it, hands the
descriptor over and closes its own. There is no moment between in which nobody holds it, and the kernel
releases it when the last holder dies, however it dies. Asking does not take the lock.
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

__all__ = ["is_alive", "take_lock"]

# struct flock on 64-bit Linux: type, whence, start, length, pid.
_FLOCK = "@hhqqi4x"
# Linux values; Python's fcntl module does not name them before 3.9 and mypy not at all.
_F_OFD_GETLK = 36
_F_OFD_SETLK = 37


def take_lock(path: Path) -> int | None:
    """Take the lock and return its descriptor, or None when a living process holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.fcntl(descriptor, _F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except (BlockingIOError, PermissionError):
        os.close(descriptor)
        return None
    return descriptor


def is_alive(path: Path) -> bool:
    """Whether a living process holds the lock."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, _F_OFD_GETLK, asked))
        return bool(answer[0] != fcntl.F_UNLCK)
    finally:
        os.close(descriptor)
