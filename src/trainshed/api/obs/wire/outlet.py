"""The sending side of a connection: bytes in their order, as fast as the client takes them."""

from __future__ import annotations

import asyncio
import os
from typing import cast

__all__ = ["Outlet"]


class Outlet(asyncio.BufferedProtocol):
    """Sends, and lets others wait while the client does not take what was sent."""

    def __init__(self, scheme: str) -> None:
        self.scheme = scheme
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        # When something was heard or taken last.
        self._since = self._loop.time()
        self._is_gone = False
        self._is_write_paused = False
        self._flush_waiter: asyncio.Future[None] | None = None

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self._since = self._loop.time()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._since = self._loop.time()
        self._wake_flush()

    def send(self, *parts: bytes) -> None:
        """Send bytes in their order, as soon as the client takes them."""
        if not self._is_gone and not self._transport.is_closing():
            for part in parts:
                self._transport.write(part)

    async def flushed(self) -> None:
        """Wait while the client does not take what was sent."""
        if self._is_write_paused and not self._is_gone:
            self._flush_waiter = self._loop.create_future()
            await self._flush_waiter

    def _wake_flush(self) -> None:
        waiter, self._flush_waiter = self._flush_waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def duplicate(self) -> int:
        """A second descriptor of the socket if bytes may be sent past the transport; -1 if not."""
        if self.scheme != "http" or self._is_gone or self._transport.get_write_buffer_size():
            return -1
        return os.dup(self._transport.get_extra_info("socket").fileno())

    async def writable(self, socket: int) -> None:
        """Wait until a descriptor of ours takes bytes again."""
        self._flush_waiter = waiter = self._loop.create_future()
        self._is_write_paused, self._since = True, self._loop.time()
        self._loop.add_writer(socket, self._wake_flush)
        try:
            await waiter
        finally:
            self._loop.remove_writer(socket)
            self._is_write_paused, self._since = False, self._loop.time()
