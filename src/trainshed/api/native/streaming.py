"""Answers that stay open: they end with their client, and their client learns why they end."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TypeVar

import anyio
import anyio.to_thread
from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.types import Send

from trainshed.api.authentication import authenticate
from trainshed.services.platform import Platform

__all__ = ["OpenAnswer", "StreamThreads", "TokenCheck"]

R = TypeVar("R")
_MOST_THREADS = 8
_CHECK_SECONDS = 30.0


class OpenAnswer(StreamingResponse):
    """A streamed answer whose source is closed at once when the client goes away."""

    def __init__(self, content: AsyncGenerator[bytes, None], media_type: str, **headers: str) -> None:
        # Proxies must pass every piece on as it comes.
        fixed = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "X-Content-Type-Options": "nosniff"}
        super().__init__(content, media_type=media_type, headers=fixed | headers)
        self._source = content

    async def stream_response(self, send: Send) -> None:
        """Send all pieces."""
        async with aclosing(self._source):
            await super().stream_response(send)


class StreamThreads:
    """Threads of their own for followers: however many there are, other requests find a free one."""

    def __init__(self) -> None:
        self._limiter: anyio.CapacityLimiter | None = None

    async def call(self, work: Callable[[], R]) -> R:
        """Run a piece of synchronous work."""
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(_MOST_THREADS)
        return await anyio.to_thread.run_sync(work, limiter=self._limiter)


class TokenCheck:
    """Asks now and then whether the credential of a long answer is still good."""

    def __init__(self, platform: Platform, request: Request) -> None:
        self._platform = platform
        self._request = request
        self._checked_at = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether the last check was a while ago."""
        return time.monotonic() - self._checked_at >= _CHECK_SECONDS

    def run(self) -> None:
        """Raise NotAuthenticated if it was revoked in the meantime."""
        authenticate(self._platform, self._request, "GET")
        self._checked_at = time.monotonic()
