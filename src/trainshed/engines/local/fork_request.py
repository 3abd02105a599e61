"""Asking the fork server for a runner. Standard library only.

Nothing runs before both sides agree: the forked runner itself sends its process id over the connection and
waits for our "go"; if we hang up instead (a timeout, our death), it ends without having done anything. So a
caller that gets None may start the runner itself: no job runs twice.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
from pathlib import Path

from trainshed.model.home import Home

__all__ = ["GO", "LONGEST_REQUEST", "open_address", "request_fork"]

GO = b"g"
LONGEST_REQUEST = 16 * 1024


class open_address(contextlib.AbstractContextManager[str]):
    """An address for a unix socket whose path may be longer than the kernel's 108 bytes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = -1

    def __enter__(self) -> str:
        self._folder = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._folder}/{self._path.name}"

    def __exit__(self, *_: object) -> None:
        os.close(self._folder)


def request_fork(home: Home, run_folder: Path, lock_fd: int, *, timeout: float = 5.0) -> int | None:
    """The process id of a runner that the fork server started for this folder, or None if it did not.

    The runner takes over the lock through `lock_fd`; the caller closes its own copy.
    """
    request = os.fsencode(run_folder)
    if len(request) > LONGEST_REQUEST:
        return None
    try:
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection,
            open_address(home.fork_socket) as address,
        ):
            connection.settimeout(timeout)
            connection.connect(address)
            connection.sendmsg(
                [request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [lock_fd]))]
            )
            answer = connection.recv(32)
            if not answer.isdigit():
                return None
            connection.send(GO)
            return int(answer)
    except OSError:
        # Not there, full, slow or dead: the caller starts the runner directly.
        return None
