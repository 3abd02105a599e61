"""The way from the platform to a node's ssh server: a socket in the run folder, carried on inside the job's network."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from trainshed.runner.sandbox import Forward
from trainshed.runner.sandbox.relay import Relay

__all__ = ["Gate"]


class Gate:
    """Carries connections to `path` on to an address of the network that a process is in.

    Only who may enter the run folder can connect, and it leads to one port of the job and nowhere else.
    """

    def __init__(self, path: Path, pid: int, address: str, port: int) -> None:
        self._path = path
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # Through the folder's descriptor: the path may be longer than an address of a socket can be.
            listener.bind(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
        path.chmod(0o600)
        listener.listen(128)
        self._network = open_network(pid)
        self._relay = Relay([listener], (Forward(0, address, port),), self._network)

    @classmethod
    def open(cls, path: Path, pid: int, address: str, port: int) -> Gate | None:
        """A gate, or nothing where the machine does not allow it: a job does not depend on it."""
        try:
            return cls(path, pid, address, port)
        except OSError:
            return None

    def close(self) -> None:
        """Cut every connection, and take the socket away."""
        self._relay.close()
        if self._network >= 0:
            os.close(self._network)
        self._path.unlink(missing_ok=True)


def open_network(pid: int) -> int:
    """The network of a process, as a descriptor; -1 where it is our own."""
    if os.readlink(f"/proc/{pid}/ns/net") == os.readlink("/proc/self/ns/net"):
        return -1
    return os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
