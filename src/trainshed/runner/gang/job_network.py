"""The network of a job whose nodes share a machine: one namespace, in which each node has an address of its own.

Any address of 127.0.0.0/8 answers on loopback without further setting up, so the nodes need nothing but the
namespace. It is owned by nobody inside a sandbox: no job may change it, or listen below port 1024.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass

from trainshed.runner.sandbox import Forward, namespace
from trainshed.runner.sandbox.relay import Relay
from trainshed.runner.sandbox.resolver import Resolver

__all__ = ["Doors", "JobNetwork"]

SIOCSIFFLAGS = 0x8914
IFF_UP, IFF_LOOPBACK, IFF_RUNNING = 0x1, 0x8, 0x40


@dataclass(frozen=True)
class Doors:
    """What of the platform the nodes reach from inside, and names that lead there beside `localhost`."""

    forwards: tuple[Forward, ...] = ()
    names: tuple[str, ...] = ()


class JobNetwork:
    """The namespace, and the platform's doors into it. Serves all nodes: a door that hung on one node's runner
    would cut the others' connections when that node ends first."""

    def __init__(self, doors: Doors) -> None:
        # The thread goes into the new network alone and ends there; this process stays where it can reach the
        # platform. Sockets stay in the network in which they were made.
        listeners: list[socket.socket] = []
        resolvers: list[socket.socket] = []
        self.descriptor = -1

        def build() -> None:
            namespace.unshare_network()
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
                flags = IFF_UP | IFF_LOOPBACK | IFF_RUNNING
                fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags))
            for forward in doors.forwards:
                listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
                listeners.append(listener)
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(("127.0.0.1", forward.port))
                listener.listen(512)
            resolver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            resolvers.append(resolver)
            resolver.bind(("127.0.0.1", 53))
            self.descriptor = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

        run_in_thread(build)
        self._servers: list[Resolver | Relay] = [
            Resolver(resolvers[0], doors.names),
            *([Relay(listeners, doors.forwards)] if listeners else []),
        ]

    def close(self) -> None:
        """Close the doors. The namespace itself stays as long as a process is in it."""
        for server in self._servers:
            server.close()
        os.close(self.descriptor)


def run_in_thread(work: Callable[[], None]) -> None:
    """Do something in a thread of its own, and raise here what it raised there."""
    faults: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as fault:
            faults.append(fault)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if faults:
        raise faults[0]
