"""The way from here to a node's ssh server: a socket of this machine, or one that a node elsewhere answers.

A node on another machine cannot be called. Whoever wants to enter it leaves a socket in the platform's copy of its
run folder; the node's courier finds that out with its next report, and calls back. Nobody needs to open a port.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from pathlib import Path

from trainshed.model.errors import NotFound, Unavailable
from trainshed.model.home import RunFolder
from trainshed.services.ssh_access import SshGate

__all__ = ["answer_tunnel", "open_tunnel", "wanted_tunnels"]

_FOLDER = "ssh-wanted"
_NAME = re.compile(r"[0-9a-f]{24}")
_CALL_SECONDS = 20.0
_MOST_WAITING = 32


def open_tunnel(gate: SshGate) -> socket.socket:
    """A connection to the node's ssh server. Waits for a node elsewhere to call back."""
    if not gate.is_elsewhere:
        return _connect(gate.folder.ssh_gate)
    folder = gate.folder.path / _FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    if len(os.listdir(folder)) >= _MOST_WAITING:
        raise Unavailable("Too many want to enter this node at once.", hint="Try again in a moment.")
    path = folder / secrets.token_hex(12)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            with _Folder(folder) as short:
                listener.bind(f"{short}/{path.name}")
            listener.listen(1)
            listener.settimeout(_CALL_SECONDS)
            connection, _ = listener.accept()
        except TimeoutError:
            raise Unavailable(
                "The node does not answer: its runner did not call back.",
                hint="Its machine may have lost the way to the platform; `trainshed show` says when it was last heard.",
                code="ssh_not_ready",
            ) from None
        finally:
            path.unlink(missing_ok=True)
    connection.settimeout(None)
    return connection


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
