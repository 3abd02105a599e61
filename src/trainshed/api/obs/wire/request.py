"""A request as its handler sees it: the head, the body that arrives, and the answer that goes out."""

from __future__ import annotations

import asyncio
import os
import select
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

from trainshed.api.obs.wire.head import Head

if TYPE_CHECKING:
    from trainshed.api.obs.wire.connection import Connection

__all__ = ["Piece", "Request", "TransferBroken", "send_stretch"]

Piece = bytes | bytearray

# Whole pieces that wait for the handler; then the sender has to wait, too.
_MOST_READY = 2
# A thread of ours does not wait for a slow receiver for longer than this; the event loop does.
_PATIENCE_MS = 20
# What one call of the system is to send.
_STRETCH = 8 << 20


class TransferBroken(Exception):
    """The other side hung up: there is nobody to answer."""


class Request:
    """One request of a connection. All methods are called from the event loop."""

    __slots__ = (
        "_broken",
        "_connection",
        "_ready",
        "_waiter",
        "has_answered",
        "head",
        "is_complete",
        "keeps",
    )

    def __init__(self, connection: Connection, head: Head) -> None:
        self.head = head
        # Whether the whole body is here.
        self.is_complete = head.length == 0
        # Whether the connection goes on behind this request.
        self.keeps = head.keeps_alive
        self.has_answered = False
        self._connection = connection
        self._ready: deque[Piece] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._broken = False

    @property
    def scheme(self) -> str:
        """`http` or `https`."""
        return self._connection.scheme

    # --- the body ---

    async def read(self) -> Piece | None:
        """The next piece of the body, None behind the last. A body that breaks off raises."""
        connection = self._connection
        if self.head.expects_continue:
            self.head.expects_continue = False
            if not self.is_complete and not self._ready:
                connection.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        while True:
            if self._ready:
                piece = self._ready.popleft()
                connection.resume()
                return piece
            if self.is_complete:
                return None
            if self._broken:
                raise TransferBroken
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    @property
    def has_more(self) -> bool:
        """Whether a piece is here that was not read yet."""
        return bool(self._ready)

    def add(self, piece: Piece) -> bool:
        """A piece has arrived; tells whether more may come at once."""
        self._ready.append(piece)
        self._wake()
        return len(self._ready) < _MOST_READY

    def complete(self) -> None:
        """The body is whole."""
        self.is_complete = True
        self._wake()

    def break_off(self) -> None:
        """Nothing more will come."""
        self._broken = True
        self._wake()

    @property
    def is_broken(self) -> bool:
        """Whether the other side has hung up."""
        return self._broken

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # --- the answer ---

    def answer(self, status: int, headers: Mapping[str, str], body: bytes = b"") -> None:
        """Send a whole answer. To a HEAD, only its head goes out."""
        head = self._begin(status, headers)
        if self.head.method == "HEAD" or not body:
            self._connection.send(head)
        elif len(body) < 4096:
            self._connection.send(head + body)
        else:
            self._connection.send(head, body)

    def begin_answer(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the head of an answer whose body follows."""
        self._connection.send(self._begin(status, headers))

    async def send(self, body: bytes) -> None:
        """Send the next bytes of the body; waits while the other side does not take them."""
        if self._broken:
            raise TransferBroken
        self._connection.send(body)
        await self._connection.flushed()

    def socket(self) -> int:
        """A descriptor that bytes may be sent through past the event loop, to be closed; -1 if there is none."""
        return self._connection.duplicate()

    def render_head(self, status: int, headers: Mapping[str, str]) -> bytes:
        """The head of an answer that the caller sends by itself."""
        return self._begin(status, headers)

    async def writable(self, socket: int) -> None:
        """Wait until the descriptor takes bytes again."""
        await self._connection.writable(socket)

    def _begin(self, status: int, headers: Mapping[str, str]) -> bytes:
        self.has_answered = True
        if not self.is_complete or headers.get("connection") == "close":
            # What is left of the body would be taken for the next request.
            self.keeps = False
        return self._connection.render(self, status, headers)


def send_stretch(socket: int, head: bytes, file: int, offset: int, length: int) -> tuple[int, int]:
    """Send as much as the receiver takes, first of the head and then of the file; tells how much of both went.

    Runs in a thread of its own: reading may wait for the disk.
    """
    sent = total = 0
    waiting: select.poll | None = None
    while total < length:
        try:
            if sent < len(head):
                sent += os.write(socket, head[sent:])
                continue
            count = os.sendfile(socket, file, offset + total, min(length - total, _STRETCH))
            if count == 0:
                raise EOFError("the file is shorter than it should be")
            total += count
        except BlockingIOError:
            if waiting is None:
                waiting = select.poll()
                waiting.register(socket, select.POLLOUT)
            if not waiting.poll(_PATIENCE_MS):
                break
    return sent, total
