"""Code snapshots: uploaded once for the same content, named by their digest."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from functools import partial
from typing import BinaryIO, cast

import anyio
import anyio.from_thread
import anyio.to_thread
from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect

from trainshed.api.authentication import CallerOf, PlatformOf
from trainshed.api.native.models import Model
from trainshed.model.errors import InvalidInput
from trainshed.services import code

__all__ = ["router"]

router = APIRouter(tags=["code"])
# Uploads wait for their senders in threads of their own: slow ones hold up each other, nobody else.
_MOST_UPLOADS = 16
_SILENCE_SECONDS = 60.0


class Snapshot(Model):
    """Whether the platform has a snapshot."""

    digest: str
    exists: bool


@router.get("/code/{digest}", summary="Ask whether a code snapshot exists")
def get_snapshot(platform: PlatformOf, caller: CallerOf, digest: str) -> Snapshot:
    """If it exists, a job can use it at once: `code: snapshot:DIGEST`."""
    return Snapshot(digest=digest, exists=code.has_snapshot(platform, caller, digest))


@router.put("/code/{digest}", status_code=201, summary="Upload a code snapshot")
async def put_snapshot(platform: PlatformOf, caller: CallerOf, digest: str, request: Request) -> Snapshot:
    """The body is a tar of the code folder; its digest must be the one in the path."""
    reader = io.BufferedReader(_BodyReader(request.stream()), 1 << 20)
    work = partial(code.upload_snapshot, platform, caller, cast(BinaryIO, reader), digest)
    await anyio.to_thread.run_sync(work, limiter=_limiter(request))
    return Snapshot(digest=digest, exists=True)


def _limiter(request: Request) -> anyio.CapacityLimiter:
    state = request.app.state
    if not hasattr(state, "uploads"):
        state.uploads = anyio.CapacityLimiter(_MOST_UPLOADS)
    limiter: anyio.CapacityLimiter = state.uploads
    return limiter


class _BodyReader(io.RawIOBase):
    """A request's body as a file, for code that runs in a thread."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            piece = anyio.from_thread.run(self._next)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    async def _next(self) -> bytes | None:
        try:
            with anyio.fail_after(_SILENCE_SECONDS):
                return await anext(self._pieces)
        except StopAsyncIteration:
            return None
        except TimeoutError:
            raise InvalidInput(
                "The upload stood still for too long.", hint="Try again.", where="body"
            ) from None
        except ClientDisconnect:
            raise InvalidInput("The upload broke off.", hint="Try again.", where="body") from None
