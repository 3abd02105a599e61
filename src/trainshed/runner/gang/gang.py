"""A runner's tie to the other nodes of its job on the same machine."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections.abc import Callable
from pathlib import Path

from trainshed.model.attempt import Ending
from trainshed.model.errors import HostUnfit
from trainshed.model.home import RunFolder
from trainshed.model.launch_plan import NodeLaunch
from trainshed.runner.gang.job_network import Doors
from trainshed.runner.gang.keeper import LONGEST, start_keeper
from trainshed.runner.sandbox import Forward, claim_namespace, namespace
from trainshed.runner.site import Site

__all__ = ["Gang", "is_gang", "join_gang"]

SOCKET = "gang.sock"
JOIN_SECONDS = 600.0
# A busy machine takes its time; a keeper that dies is noticed at once.
ANSWER_SECONDS = 120.0
LOOK_SECONDS, PATIENCE_SECONDS = 0.2, 5.0


class Gang:
    """What this node knows of the others. Without a connection, they were gone before it came."""

    def __init__(self, connection: socket.socket | None, node: int) -> None:
        self._connection = connection
        self._node = node
        self._has_left = False
        # The network that all nodes share, as a descriptor; -1 where there is none, and then why.
        self.network = -1
        self.fault = ""
        # Set once every node is ready to train.
        self.has_begun = False
        # How this node is to end for another's sake.
        self.ending: Ending | None = None if connection is not None else _lost(0)

    def fileno(self) -> int:
        """A descriptor that is readable when there is news; -1 when there will be none."""
        return self._connection.fileno() if self._connection is not None else -1

    def enter(self) -> None:
        """Join the network, and take the mounts that a runner needs; while this process has a single thread."""
        users = -1
        if self._connection is not None:
            self._connection.settimeout(ANSWER_SECONDS)
            try:
                self._connection.send(f"join {self._node}".encode())
                data, descriptors, _, _ = socket.recv_fds(
                    self._connection, LONGEST, 2, socket.MSG_CMSG_CLOEXEC
                )
            except OSError:
                data, descriptors = b"", []
            self._connection.setblocking(False)
            if not data:
                self._hang_up()
            else:
                self.fault = data.decode("utf-8", "replace").partition(" ")[2]
            self.network = descriptors[0] if descriptors else -1
            users = descriptors[1] if len(descriptors) > 1 else -1
        if users < 0:
            claim_namespace()
            return
        try:
            namespace.enter_private_namespace(users)
        except (HostUnfit, OSError) as error:
            self.fault = str(error)
        finally:
            os.close(users)

    def meet(self, check: Callable[[], None], say: Callable[[str], None]) -> None:
        """Wait until every node is ready to begin: a rank that starts alone would wait in vain for its peers.

        `check` is called all the time, and ends the wait by raising; `say` is told when it takes long.
        """
        self.say_ready()
        patience = time.monotonic() + PATIENCE_SECONDS
        while not self.has_begun:
            check()
            self.wait(LOOK_SECONDS)
            if time.monotonic() > patience and not self.has_begun:
                say("this node is ready and waits for the others")
                patience = float("inf")

    def say_ready(self) -> None:
        """This node has all it needs to begin."""
        self._send("ready")

    def wait(self, seconds: float) -> None:
        """Wait a little for news, and take it in."""
        if self._connection is None:
            return
        poller = select.poll()
        poller.register(self._connection, select.POLLIN)
        if poller.poll(int(seconds * 1000)):
            self.take_news()

    def take_news(self) -> None:
        """Read what the keeper says; never waits."""
        while self._connection is not None:
            try:
                message = self._connection.recv(LONGEST).decode("utf-8", "replace")
            except BlockingIOError:
                return
            except OSError:
                message = ""
            word, _, rest = message.partition(" ")
            if not word:
                self._hang_up()
            elif word == "go":
                self.has_begun = True
            elif self.ending is None:
                self.ending = _lost(int(rest)) if word == "lost" else _ended(int(rest))

    def leave(self, outcome: str) -> None:
        """This node has ended; the others are told unless it ended well."""
        if not self._has_left:
            self._has_left = True
            self._send(f"leave {outcome}")

    def require_network(self) -> None:
        """Fail where the nodes could not reach each other."""
        if self.network < 0 and self.fault:
            raise HostUnfit(
                f"The nodes of this job cannot have a network of their own: {self.fault}",
                hint="Run `trainshed doctor` on this machine: it says what is missing and how to add it.",
                code="sandbox",
            )

    def _send(self, message: str) -> None:
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.send(message.encode())

    def _hang_up(self) -> None:
        """The keeper is gone: the nodes have lost their doors to the platform and each other's news."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        if self.ending is None:
            self.ending = Ending(
                "failed",
                "platform",
                "gang_lost",
                "The process that ties the job's nodes together has died.",
                "Rerun the job, or give it `restarts` so that this happens by itself.",
            )


def is_gang(launch: NodeLaunch) -> bool:
    """Whether the job's nodes share this machine: then they have loopback addresses."""
    return launch.node_count > 1 and bool(launch.peers) and launch.peers[0].address.startswith("127.")


def join_gang(folder: RunFolder, launch: NodeLaunch, site: Site) -> Gang:
    """Meet the other nodes; the first node brings the keeper. Returns without one when asked to stop."""
    path = folder.path.parent / "node-0" / SOCKET
    connection: socket.socket | None
    if launch.node_index == 0:
        ports = site.ports if launch.network == "platform" else ()
        doors = Doors(
            tuple(Forward(item.port, item.host, item.port) for item in ports),
            (site.host_name,) if site.host_name else (),
        )
        wanted = doors if launch.network != "open" else None
        connection, _ = start_keeper(path, launch.node_count, wanted, folder.runner_log)
    else:
        connection = _connect(path, folder)
    gang = Gang(connection, launch.node_index)
    gang.enter()
    return gang


def _connect(path: Path, folder: RunFolder) -> socket.socket | None:
    """A connection to the keeper, which may not be there yet; nothing when it is gone already."""
    deadline = time.monotonic() + JOIN_SECONDS
    pause = 0.002
    while time.monotonic() < deadline and not folder.stop.exists():
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            parent = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                connection.connect(f"/proc/self/fd/{parent}/{path.name}")
            finally:
                os.close(parent)
            return connection
        except FileNotFoundError:
            connection.close()
            time.sleep(pause)
            pause = min(0.1, pause * 1.5)
        except OSError:
            connection.close()
            return None
    return None


def _lost(node: int) -> Ending:
    return Ending("stopped", "stop", "stopped", f"Node {node} of this job was lost.")


def _ended(node: int) -> Ending:
    return Ending("stopped", "stop", "stopped", f"Node {node} of this job has ended.")
