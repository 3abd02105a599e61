"""The gang's keeper: a small process that holds the job's network and knows which nodes live.

Every runner of the gang keeps a connection to it. The keeper lives as long as one of them does: nothing is
left when they are gone, however they went. A message is a word and, for some, a number or a text:

* node to keeper: `join N`, `ready`, `leave OUTCOME`
* keeper to node: `welcome FAULT` (with the namespaces attached), `go` once every node is ready, and
  `failed N`, `stopped N` or `lost N` when a node ended otherwise than well
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import time
import traceback
from collections.abc import Iterable
from pathlib import Path

from trainshed.runner.gang.job_network import Doors, JobNetwork
from trainshed.runner.sandbox import namespace

__all__ = ["Keeper", "start_keeper"]

LONGEST = 4096


class _Member:
    """A node's runner, as the keeper knows it."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.node = -1
        self.is_ready = False
        self.has_left = False


class Keeper:
    """Serves the nodes of one attempt until the last of them is gone."""

    def __init__(self, listener: socket.socket, nodes: int, network: JobNetwork | None, fault: str) -> None:
        self._listener = listener
        self._nodes = nodes
        self._network = network
        self._fault = fault
        self._members: list[_Member] = []
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._has_gone = False

    def add(self, connection: socket.socket) -> None:
        """Take a node in."""
        connection.setblocking(False)
        member = _Member(connection)
        self._members.append(member)
        self._selector.register(connection, selectors.EVENT_READ, member)

    def serve(self) -> None:
        """Work until no node is connected any more."""
        while self._members:
            for key, _ in self._selector.select():
                if isinstance(key.data, _Member):
                    self._read(key.data)
                else:
                    with contextlib.suppress(OSError):
                        self.add(self._listener.accept()[0])

    def _read(self, member: _Member) -> None:
        try:
            message = member.connection.recv(LONGEST).decode("utf-8", "replace")
        except BlockingIOError:
            return
        except OSError:
            message = ""
        word, _, rest = message.partition(" ")
        if word == "join" and rest.isdigit():
            member.node = int(rest)
            descriptors = [] if self._network is None else [self._network.descriptor]
            if descriptors and os.geteuid() != 0:
                descriptors.append(os.open("/proc/self/ns/user", os.O_RDONLY | os.O_CLOEXEC))
            self._send(member, f"welcome {self._fault}", descriptors)
            for descriptor in descriptors[1:]:
                os.close(descriptor)
        elif word == "ready":
            member.is_ready = True
            self._look_for_start()
        elif word == "leave":
            member.has_left = True
            if rest != "completed":
                self._tell_others(member, rest)
        elif not message:
            self._drop(member)

    def _look_for_start(self) -> None:
        ready = {member.node for member in self._members if member.is_ready}
        if len(ready) == self._nodes and not self._has_gone:
            self._has_gone = True
            for member in self._members:
                self._send(member, "go")

    def _drop(self, member: _Member) -> None:
        self._selector.unregister(member.connection)
        self._members.remove(member)
        member.connection.close()
        if member.node >= 0 and not member.has_left:
            self._tell_others(member, "lost")

    def _tell_others(self, member: _Member, word: str) -> None:
        for other in self._members:
            if other is not member and not other.has_left:
                self._send(other, f"{word} {member.node}")

    def _send(self, member: _Member, message: str, descriptors: Iterable[int] = ()) -> None:
        # A node that does not read its few messages is about to die, and is dropped when it has.
        with contextlib.suppress(OSError):
            socket.send_fds(member.connection, [message.encode()[:LONGEST]], list(descriptors))


def start_keeper(path: Path, nodes: int, doors: Doors | None, log: Path) -> tuple[socket.socket, int]:
    """Fork the keeper; the connection of the node that starts it, and the keeper's process id.

    It listens at `path`. Without `doors` the nodes have no network of their own.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    draft = f"{path.name}.new"
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Through the folder's descriptor: the path may be longer than an address of a socket can be.
        listener.bind(f"/proc/self/fd/{folder}/{draft}")
        listener.listen(1024)
        os.rename(draft, path.name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(folder)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = os.fork()
    if child:
        listener.close()
        theirs.close()
        return ours, child
    try:
        _detach({listener.fileno(), theirs.fileno()})
        _keep(listener, theirs, nodes, doors)
    except BaseException:
        with contextlib.suppress(OSError), log.open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} the keeper failed\n{traceback.format_exc()}")
    finally:
        os._exit(0)


def _keep(listener: socket.socket, first: socket.socket, nodes: int, doors: Doors | None) -> None:
    network, fault = None, ""
    if doors is not None:
        try:
            if os.geteuid() != 0:
                namespace.enter_user_namespace()
            network = JobNetwork(doors)
        except Exception as error:
            fault = str(error)
    keeper = Keeper(listener, nodes, network, fault)
    keeper.add(first)
    keeper.serve()


def _detach(kept: set[int]) -> None:
    """Let go of all that the runner has open, above all of its lock: the keeper is no proof of its life."""
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # It ends with the last node, which a shutdown of the machine asks by itself.
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))
    os.chdir("/")
