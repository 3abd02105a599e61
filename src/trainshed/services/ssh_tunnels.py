"""The way from here to a node's ssh server: a socket of this machine, or one that a node elsewhere answers.

A node on another machine cannot be called. Whoever wants to enter it leaves a socket in the platform's copy of its
run folder; the node's courier finds that out with its next report, and calls back. Nobody needs to open a port.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import socket
import time
from pathlib import Path

from trainshed.model.errors import Conflict, NotFound, Unavailable
from trainshed.model.home import RunFolder
from trainshed.services.ssh_access import SshGate, is_training

__all__ = ["answer_tunnel", "find_end", "open_tunnel", "wanted_tunnels"]

_FOLDER = "ssh-wanted"
_NAME = re.compile(r"[0-9a-f]{24}")
_CALL_SECONDS = 20.0
_LOOK_SECONDS = 0.5
# A courier comes every second or two; a minute is also enough for one that sends much over a slow line.
_SILENT_SECONDS = 60.0
_OVER = "The job's processes on this node have ended."
_MOST_WAITING = 32


async def open_tunnel(gate: SshGate) -> socket.socket:
    """A connection to the node's ssh server, which does not block. Waits for a node elsewhere to call back.

    Nobody's thread waits: as many as there are could all be taken by callers of nodes that do not answer.
    """
    if not gate.is_elsewhere:
        connection = await asyncio.to_thread(_connect, gate.folder.ssh_gate)
        connection.setblocking(False)
        return connection
    listener, path = _listen(gate.folder.path / _FOLDER)
    accepting = asyncio.ensure_future(asyncio.get_running_loop().sock_accept(listener))
    is_taken = False
    try:
        deadline = time.monotonic() + _CALL_SECONDS
        while not (await asyncio.wait({accepting}, timeout=_LOOK_SECONDS))[0]:
            if not await asyncio.to_thread(is_training, gate.folder):
                raise Conflict(_OVER, hint="`trainshed show` says how it is.", code="job_ended")
            if time.monotonic() > deadline:
                raise Unavailable(
                    "The node does not answer: its runner did not call back.",
                    hint="Its machine may have lost the way to the platform; `trainshed show` says when it was last heard.",
                    code="ssh_not_ready",
                )
        connection, is_taken = accepting.result()[0], True
        return connection
    finally:
        path.unlink(missing_ok=True)
        accepting.cancel()
        [called] = await asyncio.gather(accepting, return_exceptions=True)
        if not is_taken and isinstance(called, tuple):
            # It called back in the very moment in which it was given up.
            called[0].close()
        listener.close()


def find_end(gate: SshGate) -> str:
    """Why the connection to a node elsewhere cannot live any more; empty as long as it can.

    The node's end of it lives in the process that reports to the platform: whoever is not heard there is gone.
    """
    if not is_training(gate.folder):
        return _OVER
    try:
        seconds = time.time() - gate.folder.heard.stat().st_mtime
    except FileNotFoundError:
        return _OVER
    return f"The node has not been heard for {seconds:.0f} s." if seconds > _SILENT_SECONDS else ""


def wanted_tunnels(folder: RunFolder) -> list[str]:
    """The connections for which a node is to call back."""
    try:
        return sorted(name for name in os.listdir(folder.path / _FOLDER) if _NAME.fullmatch(name))
    except FileNotFoundError:
        return []


def answer_tunnel(folder: RunFolder, name: str) -> socket.socket:
    """The connection that waits under this name, for the node that calls back."""
    path = folder.path / _FOLDER / name
    try:
        if not _NAME.fullmatch(name):
            raise FileNotFoundError
        return _connect(path)
    except OSError as error:
        if isinstance(error, ConnectionRefusedError):
            # Who waited there is gone without a word.
            path.unlink(missing_ok=True)
        raise NotFound("Nobody waits for this connection any more.", code="tunnel_gone") from error


def _listen(folder: Path) -> tuple[socket.socket, Path]:
    """A socket in that folder, for the one who calls back."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if len(os.listdir(folder)) >= _MOST_WAITING:
        raise Unavailable("Too many want to enter this node at once.", hint="Try again in a moment.")
    path = folder / secrets.token_hex(12)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _Folder(folder) as short:
            listener.bind(f"{short}/{path.name}")
        listener.listen(1)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        path.unlink(missing_ok=True)
        raise
    return listener, path


def _connect(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _Folder(path.parent) as short:
            connection.connect(f"{short}/{path.name}")
    except BaseException:
        connection.close()
        raise
    return connection


class _Folder:
    """A short name of a folder: a path may be longer than an address of a socket can be."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> str:
        return f"/proc/self/fd/{self._descriptor}"

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
