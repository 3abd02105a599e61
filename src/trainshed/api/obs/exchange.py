"""One HTTP request and its answer, on plain ASGI: parsing, JSON, errors, and bytes that stream both ways."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from concurrent.futures import Executor
from types import TracebackType
from typing import Any, BinaryIO, TypeVar
from urllib.parse import parse_qsl, unquote

from trainshed.api.obs.desk import Desk, Later
from trainshed.model.errors import InvalidInput, NotAuthenticated, TrainshedError, Unavailable

__all__ = ["Exchange", "Receive", "Scope", "Send", "TransferBroken", "UnsatisfiableRange", "parse_range"]

T = TypeVar("T")
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

# A sender that is silent for longer is gone, though its machine may never say so.
IDLE_SECONDS = 120.0
_CHUNK = 1 << 20
# Smaller than what is sent: a thousand slow uploads at once must fit into memory.
_PIECE = 1 << 19
_DRAIN = 8 << 20
_DRAIN_SECONDS = 5.0
# What is sent at once.
_SMALL = 1 << 18


class TransferBroken(Exception):
    """The other side hung up: there is nobody to answer."""


class UnsatisfiableRange(InvalidInput):
    """The range lies outside the object."""

    status = 416
    code = "invalid_range"


class _Silence:
    """Ends the waiting within its `with` blocks when nothing is heard for too long.

    One timer for a whole body: most of its messages are there already, and a timeout for each costs more than it does.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._since: float | None = None
        self._is_over = False
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        since = now if self._since is None else self._since
        if now - since >= self._seconds and self._task is not None:
            self._is_over = True
            self._task.cancel()
        else:
            self._timer = self._loop.call_at(since + self._seconds, self._look)

    def end(self) -> None:
        """Listen no more."""
        self._timer.cancel()

    def __enter__(self) -> None:
        self._since = self._loop.time()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._since = None
        if self._is_over and kind is asyncio.CancelledError:
            assert self._task is not None
            if self._task.uncancel() == 0:
                raise TransferBroken from None


class Exchange:
    """A request, and the way to answer it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, executor: Executor, desk: Desk) -> None:
        self._receive = receive
        self._send = send
        self._executor = executor
        self._desk = desk
        self.method: str = scope["method"]
        self.scheme: str = scope.get("scheme", "http")
        path = scope.get("raw_path") or scope["path"].encode()
        # As on the wire, percent signs and all: that is what a signature is made over.
        self.path = path.decode("latin-1").partition("?")[0]
        self.raw_query: str = scope.get("query_string", b"").decode("latin-1")
        # Split before decoding: an encoded slash belongs to a name.
        self.parts = [unquote(part) for part in self.path.split("/")[1:]]
        self.headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            known, text = name.decode("latin-1").lower(), value.decode("latin-1")
            self.headers[known] = f"{self.headers[known]},{text}" if known in self.headers else text
        self.has_begun = False
        self._has_ended = False
        self._has_read = False

    # --- the request ---

    def query(self) -> dict[str, str]:
        """The parameters behind the `?`."""
        try:
            pairs = parse_qsl(self.raw_query, keep_blank_values=True, errors="strict", max_num_fields=32)
        except ValueError:
            raise InvalidInput(
                "The query cannot be read.", hint="Encode it as UTF-8 with percent signs."
            ) from None
        return dict(pairs)

    def bearer(self) -> str:
        """The token that came with the request."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise NotAuthenticated(
                "This needs a token.",
                hint="Send it as `Authorization: Bearer <token>`.",
                code="no_credential",
            )
        return token.strip()

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body in pieces of some size; a body that breaks off raises."""
        announced = self.headers.get("content-length")
        total, held, size = 0, list[bytes](), 0
        silence = _Silence(IDLE_SECONDS)
        try:
            while True:
                self._has_read = True
                with silence:
                    message = await self._receive()
                if message["type"] != "http.request":
                    raise TransferBroken
                body = message.get("body", b"")
                if body:
                    held.append(body)
                    size += len(body)
                    total += len(body)
                if size >= _PIECE:
                    yield b"".join(held)
                    held, size = [], 0
                if not message.get("more_body", False):
                    self._has_ended = True
                    break
        finally:
            silence.end()
        if announced is not None and str(total) != announced:
            raise TransferBroken
        if held:
            yield b"".join(held)

    async def in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run what takes its time or waits for the disk, such as moving a large piece."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *arguments)

    async def at_desk(self, work: Callable[..., T | Later[T]], *arguments: Any) -> T:
        """Run what asks the database or moves a small object."""
        return await self._desk.run(work, *arguments)

    # --- the answer ---

    async def answer(self, status: int, headers: Mapping[str, str], body: bytes = b"") -> None:
        """Send a short answer."""
        await self._start(status, {"content-length": str(len(body)), **headers})
        await self._send({"type": "http.response.body", "body": b"" if self.method == "HEAD" else body})

    async def answer_json(self, data: Any, status: int = 200) -> None:
        """Send JSON."""
        body = json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
        await self.answer(status, {"content-type": "application/json"}, body)

    async def answer_error(self, error: TrainshedError) -> None:
        """Send an error in the form that every surface of the platform uses."""
        if self.has_begun:
            # Half of an answer is out: only a broken connection tells the other side that it is not whole.
            raise error
        await self.drain()
        headers = {"content-type": "application/json"}
        if error.status == 401:
            headers["www-authenticate"] = "Bearer"
        await self.answer(error.status, headers, json.dumps({"error": error.to_dict()}).encode())

    async def drain(self) -> None:
        """Take a little more of a body that is refused: a client that still sends may not see the answer."""
        if self._was_never_asked():
            return  # The client asked before it sent anything.
        left = _DRAIN if self.method in ("PUT", "POST") and not self._has_ended else 0
        try:
            async with asyncio.timeout(_DRAIN_SECONDS):
                while left > 0:
                    message = await self._receive()
                    left -= len(message.get("body", b""))
                    if message["type"] != "http.request" or not message.get("more_body", False):
                        return
        except TimeoutError:
            # It does not send: then it may well listen.
            return

    def _was_never_asked(self) -> bool:
        """Whether the client waits for `100 Continue` and did not get it."""
        return "100-continue" in self.headers.get("expect", "").lower() and (
            not self._has_read or self.headers.get("content-length") == "0"
        )

    async def answer_file(self, status: int, headers: Mapping[str, str], file: BinaryIO, length: int) -> None:
        """Send `length` bytes of a file from where it stands; stops when the other side hangs up."""
        if length <= _SMALL:
            body = _read_cached(file, length)
            if body is None:
                body = await self.in_thread(_read_exactly, file, length)
            await self.answer(status, headers, body)
            return
        await self._start(status, {"content-length": str(length), **headers})
        hung_up = asyncio.create_task(self._wait_for_hang_up())
        # One piece is read while the one before is sent.
        reading = asyncio.ensure_future(self.in_thread(_read_exactly, file, min(_CHUNK, length)))
        try:
            while length > 0 and not hung_up.done():
                body = await reading
                length -= len(body)
                if length > 0:
                    reading = asyncio.ensure_future(self.in_thread(_read_exactly, file, min(_CHUNK, length)))
                await self._send({"type": "http.response.body", "body": body, "more_body": length > 0})
        finally:
            hung_up.cancel()
            # The caller closes the file: nobody may be reading it then.
            await asyncio.wait([reading])

    async def _wait_for_hang_up(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _start(self, status: int, headers: Mapping[str, str]) -> None:
        self.has_begun = True
        if self._was_never_asked():
            # boto3 takes the status of such an answer for that of its next one on the same connection.
            headers = {**headers, "connection": "close"}
        pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})


def _read_cached(file: BinaryIO, length: int) -> bytes | None:
    """The next bytes of a file if they lie in memory: to be had without waiting for a disk, and without a thread."""
    data = bytearray(length)
    try:
        count = os.preadv(file.fileno(), [data], file.tell(), os.RWF_NOWAIT)
    except (OSError, ValueError, AttributeError):
        # Not in memory, no file of this machine, or a file system that cannot tell.
        return None
    return bytes(data) if count == length else None


def _read_exactly(file: BinaryIO, length: int) -> bytes:
    data = file.read(length)
    if len(data) != length:
        raise Unavailable("The object's file is shorter than it should be.", code="blob_damaged")
    return data


def parse_range(header: str, size: int) -> tuple[int, int] | None:
    """The first byte and the length that a Range header asks for; None for the whole object."""
    unit, _, span = header.partition("=")
    first, dash, last = span.strip().partition("-")
    if unit.strip() != "bytes" or not dash or "," in span:
        return None  # By the standard, a range that is not understood is ignored.
    if not all(part.isascii() and part.isdigit() for part in (first, last) if part) or not (first or last):
        return None
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
    if start >= size or (first and last and int(last) < int(first)):
        raise UnsatisfiableRange(f"The object has {size} bytes.", hint="Ask for a range within it.")
    return start, end - start
