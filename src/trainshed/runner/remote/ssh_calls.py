"""Calls back to the platform when somebody wants to enter this node by ssh, and carries the bytes."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from trainshed.model.home import RunFolder

if TYPE_CHECKING:
    from trainshed.runner.remote.web_socket import WebSocket

__all__ = ["SshCalls"]

_PIECE = 64 * 1024
_MOST = 64
# So many names are remembered, so that none is answered twice.
_REMEMBERED = 1000


class SshCalls:
    """The connections into one node. Each has two threads of its own, and ends with either side."""

    def __init__(self, folder: RunFolder, call: Callable[[str], WebSocket]) -> None:
        self._folder = folder
        self._call = call
        self._answered: list[str] = []
        self._open: set[str] = set()
        self._had_gate = False

    def answer(self, names: Iterable[str]) -> None:
        """Call back for every name that is new.

        Who comes before the gate is there is answered once it is. Who comes after it was taken away is called, too,
        to hang up: otherwise they would wait until their time is over.
        """
        has_gate = self._folder.ssh_gate.exists()
        self._had_gate = self._had_gate or has_gate
        for name in names:
            if name in self._answered or len(self._open) >= _MOST or not self._had_gate:
                continue
            self._answered = [*self._answered[-_REMEMBERED:], name]
            self._open.add(name)
            threading.Thread(target=self._serve, args=(name,), name="ssh", daemon=True).start()

    def _serve(self, name: str) -> None:
        try:
            with (
                contextlib.closing(self._call(name)) as outside,
                contextlib.closing(_enter(self._folder)) as inside,
            ):
                _carry(inside, outside)
        except OSError as fault:
            sys.stderr.write(f"trainshed: a connection by ssh failed: {fault}\n")
        finally:
            self._open.discard(name)


def _enter(folder: RunFolder) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    parent = os.open(folder.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Through the folder's descriptor: the path may be longer than an address of a socket can be.
        connection.connect(f"/proc/self/fd/{parent}/{folder.ssh_gate.name}")
    except BaseException:
        connection.close()
        raise
    finally:
        os.close(parent)
    return connection


def _carry(inside: socket.socket, outside: WebSocket) -> None:
    def bring_out() -> None:
        with contextlib.suppress(OSError):
            while data := inside.recv(_PIECE):
                outside.send(data)
        outside.close()

    thread = threading.Thread(target=bring_out, name="ssh", daemon=True)
    thread.start()
    with contextlib.suppress(OSError):
        while data := outside.receive():
            inside.sendall(data)
    with contextlib.suppress(OSError):
        inside.shutdown(socket.SHUT_RDWR)
    thread.join()
