"""Bytes between a WebSocket and a socket of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from fastapi import WebSocket, WebSocketDisconnect

__all__ = ["carry"]

_PIECE = 64 * 1024


async def carry(websocket: WebSocket, connection: socket.socket) -> None:
    """Carry bytes both ways, as binary messages, until either side ends."""
    connection.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=connection)

    async def bring_in() -> None:
        with contextlib.suppress(WebSocketDisconnect, OSError):
            while True:
                writer.write(await websocket.receive_bytes())
                await writer.drain()

    async def bring_out() -> None:
        with contextlib.suppress(WebSocketDisconnect, OSError, RuntimeError):
            while data := await reader.read(_PIECE):
                await websocket.send_bytes(data)
            await websocket.close()

    tasks = {asyncio.create_task(bring_in()), asyncio.create_task(bring_out())}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        writer.close()
