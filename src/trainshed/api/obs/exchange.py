"""One HTTP request and its answer: parsing, JSON, errors, and bytes that stream both ways."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Executor
from typing import Any, BinaryIO, TypeVar, cast
from urllib.parse import parse_qsl, unquote

from trainshed.api.obs.desk import Desk, Later
from trainshed.api.obs.wire.request import Request, TransferBroken, send_stretch
from trainshed.model.errors import InvalidInput, NotAuthenticated, TrainshedError, Unavailable

__all__ = ["Exchange", "TransferBroken", "UnsatisfiableRange", "parse_range"]

T = TypeVar("T")

_CHUNK = 1 << 20
_DRAIN = 8 << 20
_DRAIN_SECONDS = 5.0
# What is sent at once.
_SMALL = 1 << 18


class UnsatisfiableRange(InvalidInput):
    """The range lies outside the object."""

    status = 416
    code = "invalid_range"


class Exchange:
    """A request, and the way to answer it."""

    def __init__(self, request: Request, executor: Executor, desk: Desk) -> None:
        self._request = request
        self._executor = executor
        self._desk = desk
        head = request.head
        self.method = head.method
        self.scheme = request.scheme
        # As on the wire, percent signs and all: that is what a signature is made over.
        self.path = head.path
        self.raw_query = head.query
        self.headers = head.headers
        self._was_asked_first = head.expects_continue
        self._has_read = False

    @property
    def parts(self) -> list[str]:
        """The names in the path. They are split before they are decoded: an encoded slash belongs to a name."""
        return [unquote(part) for part in self.path.split("/")[1:]]

    @property
    def has_begun(self) -> bool:
        """Whether anything of the answer is out."""
        return self._request.has_answered

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
        self._has_read = True
        while (piece := await self._request.read()) is not None:
            yield cast(bytes, piece)

    async def whole_body(self) -> bytes:
        """The body of a request that is small enough to be taken at once."""
        self._has_read = True
        first = await self._request.read()
        if self._request.is_complete and not self._request.has_more:
            return cast(bytes, first or b"")
        return b"".join([cast(bytes, first or b""), *[piece async for piece in self.pieces()]])

    async def in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run what takes its time or waits for the disk, such as moving a large piece."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *arguments)

    async def hand_on(
        self, write: Callable[[bytes], None], finish: Callable[[bytes], T], abort: Callable[[], None]
    ) -> T:
        """Hand the pieces of the body to `write`, the last one to `finish`; `abort` is called if that goes wrong.

        One piece is written while the next one arrives.
        """
        writing: asyncio.Future[None] | None = None
        try:
            held = b""
            async for piece in self.pieces():
                if writing is not None:
                    await writing
                    writing = None
                if held:
                    writing = asyncio.ensure_future(self.in_thread(write, held))
                held = piece
            if writing is not None:
                await writing
                writing = None
            return await self.in_thread(finish, held)
        except BaseException:
            if writing is not None:
                await asyncio.wait([writing])
            await self.in_thread(abort)
            raise

    async def at_desk(self, work: Callable[..., T | Later[T]], *arguments: Any) -> T:
        """Run what asks the database or moves a small object."""
        return await self._desk.run(work, *arguments)

    async def at_once(self, work: Callable[..., T | Later[T]], *arguments: Any) -> T:
        """Run what touches nothing but what usually lies in memory."""
        return await self._desk.run_promptly(work, *arguments)

    # --- the answer ---

    async def answer(self, status: int, headers: Mapping[str, str], body: bytes = b"") -> None:
        """Send a short answer."""
        self._request.answer(status, self._complete({"content-length": str(len(body)), **headers}), body)

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
        left = _DRAIN
        try:
            async with asyncio.timeout(_DRAIN_SECONDS):
                while left > 0 and not self._request.is_complete:
                    left -= len(await self._request.read() or b"")
        except TimeoutError:
            # It does not send: then it may well listen.
            return

    def _was_never_asked(self) -> bool:
        """Whether the client waits for `100 Continue` and did not get it."""
        return self._was_asked_first and (not self._has_read or self.headers.get("content-length") == "0")

    def _complete(self, headers: dict[str, str]) -> dict[str, str]:
        if self._was_asked_first and self._was_never_asked():
            # boto3 takes the status of such an answer for that of its next one on the same connection.
            headers["connection"] = "close"
        return headers

    async def answer_file(self, status: int, headers: Mapping[str, str], file: BinaryIO, length: int) -> None:
        """Send `length` bytes of a file from where it stands; stops when the other side hangs up."""
        if length <= _SMALL:
            body = _read_cached(file, length)
            if body is None:
                body = await self.in_thread(_read_exactly, file, length)
            await self.answer(status, headers, body)
            return
        complete = self._complete({"content-length": str(length), **headers})
        place = _find_place(file)
        socket = self._request.socket() if place is not None else -1
        if place is not None and socket >= 0:
            try:
                await self._send_file(socket, self._request.render_head(status, complete), *place, length)
            finally:
                os.close(socket)
            return
        self._request.begin_answer(status, complete)
        # One piece is read while the one before is sent.
        reading = asyncio.ensure_future(self.in_thread(_read_exactly, file, min(_CHUNK, length)))
        try:
            while length > 0:
                body = await reading
                length -= len(body)
                if length > 0:
                    reading = asyncio.ensure_future(self.in_thread(_read_exactly, file, min(_CHUNK, length)))
                await self._request.send(body)
        finally:
            # The caller closes the file: nobody may be reading it then.
            await asyncio.wait([reading])

    async def _send_file(self, socket: int, head: bytes, file: int, offset: int, length: int) -> None:
        """Have the kernel send a file: its bytes never come here."""
        while length > 0:
            try:
                sent, count = await self.in_thread(send_stretch, socket, head, file, offset, length)
            except EOFError:
                raise _damaged() from None
            except OSError:
                raise TransferBroken from None
            head, offset, length = head[sent:], offset + count, length - count
            if self._request.is_broken:
                raise TransferBroken
            if length > 0:
                await self._request.writable(socket)


def _find_place(file: BinaryIO) -> tuple[int, int] | None:
    """The descriptor of a file and where it stands; None for what only looks like a file."""
    try:
        return file.fileno(), file.tell()
    except (OSError, ValueError, AttributeError):
        return None


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
        raise _damaged()
    return data


def _damaged() -> Unavailable:
    return Unavailable("The object's file is shorter than it should be.", code="blob_damaged")


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
