"""One connection of the object store's HTTP server.

Bodies are the point: one with a length goes from the socket straight into the memory that the handler gets, in few
and large steps. Only heads and chunks pass through a parser.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Mapping
from typing import Any, cast

from trainshed.api.obs.wire.answer import render_head, render_refusal
from trainshed.api.obs.wire.chunked import BadChunk, ChunkedBody
from trainshed.api.obs.wire.head import BadHead, Head, parse_head
from trainshed.api.obs.wire.lobby import Lobby
from trainshed.api.obs.wire.outlet import Outlet
from trainshed.api.obs.wire.request import Request, TransferBroken

__all__ = ["Connection"]

# A body up to this size is handed over as a whole, and the handler begins when it is there.
SMALL_BODY = 1 << 18
# A larger one comes in pieces. A thousand slow uploads at once must fit into memory.
_PIECE = 1 << 19
_WRITE_HIGH = 1 << 19

_log = logging.getLogger("trainshed.store")


class Connection(Outlet):
    """Reads requests one after the other, has each answered, and ends."""

    def __init__(self, lobby: Lobby, scheme: str) -> None:
        super().__init__(scheme)
        self._lobby = lobby
        self._request: Request | None = None
        self._task: asyncio.Task[None] | None = None
        # What came of the next head, or what follows the request under way.
        self._rest = b""
        # The part of a body that is being filled, where its next byte goes, and how much of the body is not here yet.
        self._piece: bytearray | None = None
        self._room: memoryview | None = None
        self._left = 0
        self._chunks: ChunkedBody | None = None
        # When the head began that is being read.
        self._head_since = self._since
        self._is_paused = False
        self._is_discarding = False
        self._has_ended = False
        self._is_leaving = False

    # --- called by the event loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH)
        self._lobby.connections.add(self)
        if self._lobby.is_closing:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_gone = True
        self._lobby.connections.discard(self)
        if self._request is not None:
            self._request.break_off()
        self._wake_flush()
        self._piece = self._room = None

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._lobby.scratch if self._room is None else self._room

    def buffer_updated(self, count: int) -> None:
        self._since = self._loop.time()
        if self._room is not None:
            self._left -= count
            if count == len(self._room):
                self._end_piece()
            else:
                self._room = self._room[count:]
        elif self._request is None and not self._rest and not self._is_discarding:
            self._take_fresh(count)
        elif not self._is_discarding:
            self._take(bytes(self._lobby.scratch[:count]))

    def eof_received(self) -> bool:
        """The client sends no more; it may well wait for its answer."""
        self._has_ended = True
        request = self._request
        if request is None or self._is_discarding:
            return False
        request.keeps = False
        if request.is_complete:
            # Over TLS there is no such half: both sides end together.
            return self.scheme == "http"
        request.break_off()
        return False

    # --- reading ---

    def _take_fresh(self, count: int) -> None:
        """A request begins. Its body, which may be here already, is not copied more often than needed."""
        end = self._lobby.scratched.find(b"\r\n\r\n", 0, count) + 4
        if not 4 <= end <= self._lobby.limits.head_bytes or self._lobby.scratched[0] in b"\r\n":
            self._take(bytes(self._lobby.scratch[:count]))
            return
        try:
            head = parse_head(bytes(self._lobby.scratch[:end]))
        except BadHead as error:
            self._refuse(error)
            return
        length = count - end
        if head.length == length and 0 < length <= SMALL_BODY and not head.expects_continue:
            request = self._request = Request(self, head)
            request.keeps = request.keeps and not self._lobby.is_closing
            request.add(bytearray(self._lobby.scratch[end:count]))
            request.complete()
            self._start()
        else:
            self._begin(head, bytes(self._lobby.scratch[end:count]))

    def _take(self, data: bytes) -> None:
        if self._chunks is not None:
            self._take_chunks(data)
        elif self._request is not None:
            # Sent ahead, before the answer to the one under way.
            self._rest += data
            if len(self._rest) > self._lobby.limits.head_bytes:
                self._pause()
        else:
            if self._rest:
                data = self._rest + data
            else:
                self._head_since = self._since
            self._rest = data
            self._read_head()

    def _read_head(self) -> None:
        data = self._rest
        if data[:1] in (b"\r", b"\n"):
            # Some clients end a body with a line end too many.
            data = self._rest = data.lstrip(b"\r\n")
        end = data.find(b"\r\n\r\n") + 4
        limit = self._lobby.limits.head_bytes
        if end < 4 and len(data) <= limit and b"\n\n" not in data:
            return
        try:
            if not 4 <= end <= limit:
                raise BadHead(
                    431 if len(data) > limit else 400, "The request's head does not end, or too late."
                )
            head = parse_head(data if end == len(data) else data[:end])
        except BadHead as error:
            self._refuse(error)
            return
        self._rest = b""
        self._begin(head, data[end:])

    def _begin(self, head: Head, rest: bytes) -> None:
        request = self._request = Request(self, head)
        if self._has_ended or self._lobby.is_closing:
            request.keeps = False
        if head.length is None:
            self._chunks = ChunkedBody(_PIECE)
            self._start()
            if rest:
                self._take_chunks(rest)
            return
        if head.length == 0:
            self._rest = rest
            self._start()
            return
        self._left = head.length
        if head.length > SMALL_BODY or head.expects_continue:
            self._start()
        self._new_piece()
        here, self._rest = (
            (rest, b"") if len(rest) <= self._left else (rest[: self._left], rest[self._left :])
        )
        while here:
            assert self._room is not None
            part, here = here[: len(self._room)], here[len(self._room) :]
            self._room[: len(part)] = part
            self.buffer_updated(len(part))

    def _new_piece(self) -> None:
        self._piece = bytearray(min(self._left, _PIECE))
        self._room = memoryview(self._piece)

    def _end_piece(self) -> None:
        """A piece is full: hand it over, and make place for the next one."""
        request, piece = self._request, self._piece
        self._piece = self._room = None
        assert request is not None and piece is not None
        may_go_on = request.add(piece)
        if self._left:
            self._new_piece()
            if not may_go_on:
                self._pause()
        else:
            request.complete()
            if self._task is None:
                self._start()

    def _take_chunks(self, data: bytes) -> None:
        request, chunks = self._request, self._chunks
        assert request is not None and chunks is not None
        try:
            pieces = chunks.feed(data)
        except BadChunk:
            self._chunks = None
            self._is_discarding = True
            request.break_off()
            return
        for piece in pieces:
            if not request.add(piece):
                self._pause()
        if chunks.is_complete:
            self._chunks = None
            if chunks.has_more:
                # Where exactly the next request begins, the parser does not say: the client sends it again.
                request.keeps = False
                self._is_discarding = True
            request.complete()

    def _pause(self) -> None:
        if not self._is_paused and not self._is_gone:
            self._is_paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on, if reading was paused because nobody took what came."""
        if self._is_paused and not self._is_gone:
            self._is_paused = False
            self._since = self._loop.time()
            self._transport.resume_reading()

    # --- answering ---

    def _start(self) -> None:
        assert self._request is not None
        self._task = self._loop.create_task(self._serve(self._request))

    async def _serve(self, request: Request) -> None:
        try:
            await self._lobby.handler(request)
        except (TransferBroken, ConnectionError):
            request.break_off()
        except asyncio.CancelledError:
            self._abort()
            raise
        except Exception:
            # Nothing can be told any more: handlers answer their errors themselves as long as they can.
            _log.exception("An answer broke off.")
            request.break_off()
        self._task = None
        self._finish(request)

    def _finish(self, request: Request) -> None:
        if self._is_gone:
            return
        self._request = None
        if request.is_broken and not request.has_answered and not self._has_ended:
            self._refuse(BadHead(400, "The body is not framed as it should be."))
            return
        if request.is_broken or not request.has_answered:
            # Half an answer, or none: only a broken connection tells the other side.
            self._abort()
            return
        self._since = self._loop.time()
        if not request.keeps:
            self._close(is_read=request.is_complete and not self._rest and not self._is_discarding)
        elif self._is_write_paused:
            # A client that does not take its answers gets no further ones.
            self._loop.create_task(self._go_on_later())
        else:
            self._go_on()

    def _go_on(self) -> None:
        if self._lobby.is_closing:
            self._close(is_read=not self._rest)
            return
        self.resume()
        if self._rest:
            self._loop.call_soon(self._read_ahead)

    def _read_ahead(self) -> None:
        if self._request is None and not self._is_gone and not self._is_discarding:
            self._head_since = self._loop.time()
            self._read_head()

    async def _go_on_later(self) -> None:
        await self.flushed()
        if not self._is_gone:
            self._go_on()

    def render(self, request: Request, status: int, headers: Mapping[str, str]) -> bytes:
        """The head of an answer."""
        if self._lobby.is_closing or self._has_ended or self._is_leaving:
            request.keeps = False
        word = ("keep-alive" if request.head.is_old else "") if request.keeps else "close"
        return render_head(status, headers, self._lobby.date(), word)

    # --- the end ---

    def _refuse(self, error: BadHead) -> None:
        self.send(render_refusal(error, self._lobby.date()))
        self._close(is_read=False)

    def _close(self, *, is_read: bool) -> None:
        """End the connection. Closed with bytes unread it would be reset, and the answer lost with it."""
        if is_read or self._has_ended or not self._transport.can_write_eof():
            self._transport.close()
            return
        self._is_discarding = True
        self._rest, self._piece, self._room, self._chunks = b"", None, None, None
        self.resume()
        with contextlib.suppress(OSError, RuntimeError):
            self._transport.write_eof()
        self._loop.call_later(self._lobby.limits.linger_seconds, self._abort)

    def _abort(self) -> None:
        if not self._is_gone:
            self._transport.abort()

    def leave(self) -> None:
        """End with the next answer: it asks the client to connect anew."""
        self._is_leaving = True

    def close_idle(self, since: float = math.inf) -> None:
        """Close if no request is under way and none was since then; one that is under way is the last."""
        if self._request is None and not self._is_discarding:
            if self._since <= since and not self._rest:
                self._transport.close()
        elif self._request is not None:
            self._request.keeps = False

    def look(self, now: float) -> None:
        """End what takes too long."""
        limits, quiet = self._lobby.limits, now - self._since
        if self._is_discarding:
            return
        if self._request is None:
            if self._rest and now - self._head_since >= limits.head_seconds:
                self._refuse(BadHead(408, "The request's head took too long."))
            elif quiet >= limits.idle_seconds:
                self._transport.abort() if self._transport.is_closing() else self._transport.close()
        elif quiet >= limits.silent_seconds and (
            self._is_write_paused or (not self._request.is_complete and not self._is_paused)
        ):
            self._abort()

    def end(self) -> Any:
        """Break off; returns the task under way."""
        self._abort()
        return self._task
