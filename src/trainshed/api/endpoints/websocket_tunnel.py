"""A WebSocket to a tool: the visitor's messages go to its Unix socket, its messages come back (RFC 6455)."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import os
import struct
from dataclasses import dataclass

from starlette.types import Receive, Scope, Send

__all__ = ["tunnel_websocket"]

_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_LARGEST_MESSAGE = 16 << 20
_HANDSHAKE_SECONDS = 10.0
_TEXT, _BINARY, _CLOSE, _PING, _PONG = 1, 2, 8, 9, 10
_PASSED_HEADERS = (b"sec-websocket-protocol", b"user-agent", b"accept-language")


@dataclass(frozen=True)
class _Message:
    kind: int
    data: bytes


async def tunnel_websocket(scope: Scope, receive: Receive, send: Send, path: str, target: str) -> None:
    """Connect visitor and tool until one of them ends."""
    await receive()  # websocket.connect
    try:
        reader, writer = await asyncio.wait_for(asyncio.open_unix_connection(path), _HANDSHAKE_SECONDS)
    except (OSError, TimeoutError):
        await send({"type": "websocket.close", "code": 1013})
        return
    try:
        try:
            protocol = await asyncio.wait_for(_shake_hands(scope, reader, writer, target), _HANDSHAKE_SECONDS)
        except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            await send({"type": "websocket.close", "code": 1011})
            return
        await send({"type": "websocket.accept", **({"subprotocol": protocol} if protocol else {})})
        tasks = [
            asyncio.create_task(_carry_in(receive, writer)),
            asyncio.create_task(_carry_out(reader, writer, send)),
        ]
        _, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(Exception):
            await send({"type": "websocket.close", "code": 1000})
    finally:
        writer.close()


async def _shake_hands(
    scope: Scope, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: str
) -> str:
    if any(char in target for char in "\r\n "):
        raise ValueError("the path cannot be asked for")
    key = base64.b64encode(os.urandom(16))
    lines = [
        b"GET " + target.encode("latin-1") + b" HTTP/1.1",
        b"Host: localhost",
        b"Upgrade: websocket",
        b"Connection: Upgrade",
        b"Sec-WebSocket-Version: 13",
        b"Sec-WebSocket-Key: " + key,
    ]
    lines += [
        name + b": " + value
        for name, value in scope["headers"]
        if name in _PASSED_HEADERS and b"\r" not in value and b"\n" not in value
    ]
    writer.write(b"\r\n".join(lines) + b"\r\n\r\n")
    await writer.drain()
    head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
    answer = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in head[1:])
    }
    expected = base64.b64encode(hashlib.sha1(key + _MAGIC).digest())
    if not head[0].startswith(b"HTTP/1.1 101") or answer.get(b"sec-websocket-accept") != expected:
        raise ValueError("the tool speaks no WebSocket there")
    return answer.get(b"sec-websocket-protocol", b"").decode("latin-1")


async def _carry_in(receive: Receive, writer: asyncio.StreamWriter) -> None:
    while True:
        message = await receive()
        if message["type"] != "websocket.receive":
            writer.write(_frame(_CLOSE, struct.pack("!H", 1000)))
            await writer.drain()
            return
        text = message.get("text")
        kind, data = (_TEXT, text.encode()) if text is not None else (_BINARY, message.get("bytes") or b"")
        writer.write(_frame(kind, data))
        await writer.drain()


async def _carry_out(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, send: Send) -> None:
    while True:
        message = await _read_message(reader, writer)
        if message is None:
            return
        if message.kind == _TEXT:
            await send({"type": "websocket.send", "text": message.data.decode("utf-8", "replace")})
        else:
            await send({"type": "websocket.send", "bytes": message.data})


async def _read_message(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> _Message | None:
    """The next whole message; None at the end. Pings are answered on the way."""
    kind, data = 0, b""
    while True:
        try:
            first, second = await reader.readexactly(2)
            size = second & 0x7F
            if size >= 126:
                width = 2 if size == 126 else 8
                size = int.from_bytes(await reader.readexactly(width), "big")
            if second & 0x80 or len(data) + size > _LARGEST_MESSAGE:
                return None  # a server masks nothing, and nobody sends so much
            piece = await reader.readexactly(size)
        except (asyncio.IncompleteReadError, OSError):
            return None
        code = first & 0x0F
        if code == _CLOSE:
            return None
        if code == _PING:
            writer.write(_frame(_PONG, piece))
            continue
        if code == _PONG:
            continue
        kind = code or kind
        data += piece
        if first & 0x80:
            return _Message(kind, data)


def _frame(kind: int, data: bytes) -> bytes:
    """A frame of a client: whole and masked."""
    size = len(data)
    if size < 126:
        head = struct.pack("!BB", 0x80 | kind, 0x80 | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", 0x80 | kind, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", 0x80 | kind, 0x80 | 127, size)
    mask = os.urandom(4)
    padded = (mask * (size // 4 + 1))[:size]
    masked = (int.from_bytes(data, "big") ^ int.from_bytes(padded, "big")).to_bytes(size, "big")
    return head + mask + masked
