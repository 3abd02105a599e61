"""Answers a job's questions for names: those of its own loopback, and nothing else.

A job without a network has no name server. Clients of object stores nevertheless ask for names such as
`bucket.localhost`, one for each bucket, which no hosts file can list. The resolver's socket lies on the job's
loopback at port 53; a job cannot listen there itself, since that takes a right which it does not have.
"""

from __future__ import annotations

import ctypes
import os
import select
import socket
import struct
import threading
from collections.abc import Iterable, Sequence

__all__ = ["Resolver", "answer"]

CLONE_NEWNET = 0x40000000
TYPE_A, CLASS_IN = 1, 1
RESPONSE, AUTHORITATIVE, RECURSION_WANTED, RECURSION_AVAILABLE = 0x8000, 0x0400, 0x0100, 0x0080
NO_ERROR, FORMAT_ERROR, NAME_ERROR = 0, 1, 3
LIFETIME = 60


class Resolver:
    """Serves the network namespace of a process, in a thread of its own."""

    def __init__(self, listener: socket.socket, names: Sequence[str] = ()) -> None:
        self._listener = listener
        self._names = tuple(tuple(name.lower().encode().split(b".")) for name in names)
        self._bell, self._button = os.pipe()
        self._thread = threading.Thread(target=self._run, name="sandbox-resolver", daemon=True)
        self._thread.start()

    @classmethod
    def start(cls, pid: int, names: Sequence[str] = ()) -> Resolver | None:
        """A resolver on the loopback of a process's network; nothing where the machine does not allow it.

        `names` are known beside `localhost`, with all names below them.
        """
        found: list[socket.socket] = []

        def bind() -> None:
            # A socket stays in the network it was made in. The change of network is this thread's alone, and
            # the thread ends right after.
            namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                if ctypes.CDLL(None, use_errno=True).setns(namespace, CLONE_NEWNET) != 0:
                    return
                listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
                found.append(listener)
                listener.bind(("127.0.0.1", 53))
            finally:
                os.close(namespace)

        def try_to_bind() -> None:
            try:
                bind()
            except OSError:
                while found:
                    found.pop().close()

        thread = threading.Thread(target=try_to_bind)
        thread.start()
        thread.join()
        return cls(found[0], names) if found else None

    def close(self) -> None:
        """Stop."""
        os.close(self._button)
        self._thread.join(5)

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._listener, select.POLLIN)
        poller.register(self._bell, select.POLLIN)
        try:
            while all(descriptor != self._bell for descriptor, _ in poller.poll()):
                try:
                    question, asker = self._listener.recvfrom(512)
                    self._listener.sendto(answer(question, self._names), asker)
                except OSError:
                    continue
        finally:
            self._listener.close()
            os.close(self._bell)


def answer(question: bytes, names: Iterable[tuple[bytes, ...]] = ()) -> bytes:
    """The answer to a question: 127.0.0.1 for `localhost`, for `names` (as their labels) and for all below them,
    "no such name" for the rest."""
    if len(question) < 12:
        return b""
    number, flags, questions = struct.unpack(">HHH", question[:6])
    told = RESPONSE | AUTHORITATIVE | RECURSION_AVAILABLE | (flags & (RECURSION_WANTED | 0x7800))
    name, end = _read_name(question)
    if flags & RESPONSE or questions != 1 or not end or len(question) < end + 4:
        return struct.pack(">6H", number, told | FORMAT_ERROR, 0, 0, 0, 0)
    kind, family = struct.unpack(">HH", question[end : end + 4])
    asked = question[12 : end + 4]
    if not any(name[-len(known) :] == list(known) for known in ((b"localhost",), *names)):
        return struct.pack(">6H", number, told | NAME_ERROR, 1, 0, 0, 0) + asked
    if (kind, family) != (TYPE_A, CLASS_IN):
        return struct.pack(">6H", number, told | NO_ERROR, 1, 0, 0, 0) + asked
    # The answer's name is a pointer to the question's.
    record = struct.pack(">HHHIH", 0xC00C, TYPE_A, CLASS_IN, LIFETIME, 4) + socket.inet_aton("127.0.0.1")
    return struct.pack(">6H", number, told | NO_ERROR, 1, 1, 0, 0) + asked + record


def _read_name(question: bytes) -> tuple[list[bytes], int]:
    """The labels of the name that is asked for, and where it ends; 0 if it cannot be read."""
    labels: list[bytes] = []
    position = 12
    while position < len(question):
        size = question[position]
        position += 1
        if size == 0:
            return labels, position
        if size > 63 or position + size > len(question):
            break
        labels.append(question[position : position + size].lower())
        position += size
    return [], 0
