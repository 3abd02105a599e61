"""Make many files durable in one go.

Each gets an fsync of its own, with its own outcome, but all are asked for at once: the disk works on them together, and
this process waits once. One after the other, each would wait for the disk again, and in Python for its turn after that.

The kernel's calls for this (`man 2 io_submit`; files are synced since Linux 4.18) have no function in the C library.
Where they are missing, or refused inside of a container, files are synced one after the other.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
import threading
from collections.abc import Callable, Sequence

from trainshed.store.embedded.early_sync import begin_sync

__all__ = ["sync_together"]

# Numbers of the calls: io_setup, io_destroy, io_getevents, io_submit.
_CALLS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
_MOST = 256
_MACHINE = os.uname().machine
# struct iocb and struct io_event of linux/aio_abi.h, where the least significant byte comes first.
_REQUEST = struct.Struct("=QIIHhIQQqQII")
_FILE_AT = 20
_OUTCOME = struct.Struct("=QQqq")
_FSYNC = 2


def _nothing() -> None:
    pass


def sync_together(files: Sequence[int], meanwhile: Callable[[], None] = _nothing) -> list[OSError | None]:
    """Make what was written to open files durable; returns, for each, None or why it may be lost.

    `meanwhile` is what this thread does before it waits for the disk.
    """
    outcomes: list[OSError | None] = [None] * len(files)
    done = 0
    while len(files) - done > 1 and (queue := _borrow()) is not None:
        part = files[done : done + _MOST]
        taken = queue.sync(part, outcomes, done, meanwhile)
        done += taken
        meanwhile = _nothing
        if taken < len(part):
            # Of a kind that this kernel does not sync in this way.
            break
    for file in files[done:]:
        # So that the disk has begun with all of them before it is waited for one of them.
        begin_sync(file)
    meanwhile()
    for number in range(done, len(files)):
        try:
            os.fsync(files[number])
        except OSError as error:
            outcomes[number] = error
    return outcomes


class _Queue:
    """A context of the kernel's, used by one thread at a time."""

    def __init__(self, calls: tuple[int, int, int, int]) -> None:
        self._setup, self._destroy, self._get, self._submit = calls
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        self._context = ctypes.c_ulong(0)
        if self._call(ctypes.c_long(self._setup), ctypes.c_uint(_MOST), ctypes.byref(self._context)) != 0:
            raise OSError(ctypes.get_errno(), "io_setup")
        self._requests = ctypes.create_string_buffer(_REQUEST.size * _MOST)
        self._outcomes = ctypes.create_string_buffer(_OUTCOME.size * _MOST)
        self._pointers = (ctypes.c_void_p * _MOST)()
        for number in range(_MOST):
            at = number * _REQUEST.size
            _REQUEST.pack_into(self._requests, at, number, 0, 0, _FSYNC, 0, 0, 0, 0, 0, 0, 0, 0)
            self._pointers[number] = ctypes.addressof(self._requests) + at

    def sync(
        self,
        files: Sequence[int],
        outcomes: list[OSError | None],
        first: int,
        meanwhile: Callable[[], None],
    ) -> int:
        """Sync files and note what failed, from `first` on; returns how many the kernel has taken."""
        for number, file in enumerate(files):
            struct.pack_into("=I", self._requests, number * _REQUEST.size + _FILE_AT, file)
        count = ctypes.c_long(len(files))
        taken: int = max(0, self._call(ctypes.c_long(self._submit), self._context, count, self._pointers))
        left = taken
        try:
            meanwhile()
            while left:
                left -= self._collect(left, outcomes, first)
        finally:
            if left:
                # Interrupted: what is still to come must not be taken for the next one's. This waits for it.
                self._call(ctypes.c_long(self._destroy), self._context)
            else:
                _give_back(self)
        return taken

    def _collect(self, left: int, outcomes: list[OSError | None], first: int) -> int:
        count = ctypes.c_long(left)
        got: int = self._call(ctypes.c_long(self._get), self._context, count, count, self._outcomes, None)
        if got < 0:
            fault = ctypes.get_errno()
            if fault != errno.EINTR:
                raise OSError(fault, os.strerror(fault))
            return 0
        for number in range(got):
            which, _, result, _ = _OUTCOME.unpack_from(self._outcomes, number * _OUTCOME.size)
            if result < 0:
                outcomes[first + which] = OSError(-result, os.strerror(-result))
        return got


_lock = threading.Lock()
_idle: list[_Queue] = []
# A context belongs to one process: after a fork it is of no use.
_owner = 0
_is_missing = False


def _borrow() -> _Queue | None:
    global _owner, _is_missing
    calls = _CALLS.get(_MACHINE)
    if _is_missing or calls is None or sys.byteorder != "little" or sys.maxsize < 1 << 32:
        return None
    with _lock:
        if _owner != os.getpid():
            _idle.clear()
            _owner = os.getpid()
        if _idle:
            return _idle.pop()
    try:
        return _Queue(calls)
    except (OSError, AttributeError):
        _is_missing = True
        return None


def _give_back(queue: _Queue) -> None:
    with _lock:
        if _owner == os.getpid():
            _idle.append(queue)


def _forget_lock() -> None:
    """In a child: whoever held the lock is not here."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_lock)
