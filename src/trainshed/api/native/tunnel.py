"""Bytes between a WebSocket and a socket of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

from fastapi import WebSocket, WebSocketDisconnect

__all__ = ["carry", "close_with_words"]

_PIECE = 64 * 1024
_LOOK_SECONDS = 1.0
# What is under way when one side ends may still arrive at the other; one that takes nothing is not waited for.
_FAREWELL_SECONDS = 10.0
_LONGEST_WORDS = 120


async def carry(
    websocket: WebSocket,
    connection: socket.socket,
    *,
    words: str = "",
    find_end: Callable[[], str] | None = None,
) -> None:
    """Carry bytes both ways, as binary messages, until either side ends.

    `words` tell the caller of the WebSocket why it is closed when the other side was the first to end. `find_end` is
    asked now and then, and ends all with the words that it returns: a side may be gone without anybody noticing.
    """
    connection.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=connection)
    incoming = asyncio.create_task(_bring_in(websocket, writer))
    outgoing = asyncio.create_task(_bring_out(reader, websocket))
    watching = asyncio.create_task(_watch(find_end)) if find_end is not None else None
    tasks: set[asyncio.Task[object]] = {task for task in (incoming, outgoing, watching) if task is not None}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        has_left = incoming.done()
        if watching is not None and watching.done() and watching.exception() is None:
            words = watching.result()
    finally:
        # First of all: the server closes no WebSocket while somebody still waits for its next message.
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if not has_left:
        await close_with_words(websocket, 1000, words)
    writer.close()
    try:
        await asyncio.wait_for(writer.wait_closed(), _FAREWELL_SECONDS)
    except (OSError, TimeoutError):
        writer.transport.abort()


async def close_with_words(websocket: WebSocket, code: int, words: str) -> None:
    """Close a WebSocket and say why, as far as there is room for it."""
    reason = words.encode()[:_LONGEST_WORDS].decode(errors="ignore")
    with contextlib.suppress(WebSocketDisconnect, OSError, RuntimeError, TimeoutError):
        await asyncio.wait_for(websocket.close(code, reason), _FAREWELL_SECONDS)


async def _bring_in(websocket: WebSocket, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(WebSocketDisconnect, OSError):
        while True:
            writer.write(await websocket.receive_bytes())
            await writer.drain()


async def _bring_out(reader: asyncio.StreamReader, websocket: WebSocket) -> None:
    with contextlib.suppress(WebSocketDisconnect, OSError, RuntimeError):
        while data := await reader.read(_PIECE):
            await websocket.send_bytes(data)


async def _watch(find_end: Callable[[], str]) -> str:
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        words = await asyncio.to_thread(find_end)
        if words:
            return words
