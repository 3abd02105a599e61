"""Logs: as JSON pieces, as exact bytes, or followed live as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from trainshed.api.authentication import CallerOf, PlatformOf
from trainshed.api.native.event_stream import (
    EVENT_STREAM,
    HEARTBEAT,
    encode_bytes,
    format_event,
    safe_length,
)
from trainshed.api.native.log_following import End, Piece, Quiet, follow_log
from trainshed.api.native.models import Model
from trainshed.api.native.streaming import OpenAnswer
from trainshed.model.errors import InvalidInput
from trainshed.services import jobs, logs
from trainshed.services.logs import LogStreamView

__all__ = ["router"]

router = APIRouter(tags=["logs"])
_BYTES = "application/octet-stream"
_LARGEST_PIECE = 4 * 1024 * 1024


class StreamList(Model):
    """The logs that an attempt has."""

    streams: list[LogStreamView]


class LogPiece(Model):
    """A piece of a log."""

    offset: int
    next_offset: int = Field(description="Where to go on.")
    size: int = Field(description="How many bytes the log has so far.")
    ended: bool = Field(description="Whether the log is complete and this piece reaches its end.")
    reason: str = Field(description="Why the log ended, once it has.")
    text: str | None = Field(default=None, description="The bytes, if they are UTF-8.")
    base64: str | None = Field(default=None, description="The bytes, if they are not.")


@router.get("/jobs/{job}/logs", summary="List a job's logs")
def list_streams(
    platform: PlatformOf,
    caller: CallerOf,
    job: str,
    attempt: Annotated[int | None, Query(ge=1, description="Of this attempt; else of the last one.")] = None,
) -> StreamList:
    """`platform` is what the platform says, `rank-0`, `rank-1` … are the processes of the job."""
    return StreamList(streams=logs.log_streams(platform, caller, job, attempt=attempt))


@router.get(
    "/jobs/{job}/logs/{stream:path}",
    summary="Read or follow a log",
    response_model=LogPiece,
    responses={
        200: {
            "content": {EVENT_STREAM: {}, _BYTES: {}},
            "description": "A piece as JSON; with `Accept: text/event-stream` events `{offset, text or base64}` "
            "and finally `end` with the reason; with `Accept: application/octet-stream` the exact bytes.",
        }
    },
)
def read_log(
    platform: PlatformOf,
    caller: CallerOf,
    request: Request,
    job: str,
    stream: str,
    offset: Annotated[int, Query(ge=0, description="The byte to begin at.")] = 0,
    limit: Annotated[int, Query(ge=1, le=_LARGEST_PIECE, description="Bytes of a JSON piece.")] = 256 * 1024,
    attempt: Annotated[int | None, Query(ge=1, description="Of this attempt; else of the last one.")] = None,
    follow: Annotated[bool, Query(description="Stay until the log has really ended.")] = False,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
    last_event_id: Annotated[str, Header(description="Resume behind this event.")] = "",
) -> Response:
    """Resume a broken stream with `offset` or `Last-Event-ID`: no byte is lost or doubled."""
    found = jobs.get_job(platform, caller, job)
    if last_event_id:
        offset, attempt = _read_event_id(last_event_id, attempt)
    if EVENT_STREAM not in accept and _BYTES not in accept and not follow:
        chunk = logs.read_log(
            platform, caller, found.id, attempt=attempt, stream=stream, offset=offset, limit=limit
        )
        # Cut at a character's border, so that text stays text from piece to piece.
        size = len(chunk.data) if chunk.ended else safe_length(chunk.data) or len(chunk.data)
        data = chunk.data[:size]
        return JSONResponse(
            {
                "offset": offset,
                "next_offset": offset + size,
                "size": chunk.size,
                "ended": chunk.ended,
                "reason": chunk.reason,
                **encode_bytes(data),
            }
        )
    # Faults such as an unknown stream are told by the status, before the stream opens.
    if attempt or found.attempt:
        logs.read_log(platform, caller, found.id, attempt=attempt, stream=stream, offset=offset, limit=1)
    as_bytes = _BYTES in accept
    source = follow_log(
        platform,
        caller,
        found,
        request,
        stream=stream,
        attempt=attempt,
        offset=offset,
        follow=follow,
        cut=len if as_bytes else safe_length,
        # Text is held several times while it becomes an event; plain bytes are not.
        piece_bytes=1024 * 1024 if as_bytes else 256 * 1024,
    )
    if as_bytes:
        return OpenAnswer(_as_bytes(source), _BYTES)
    return OpenAnswer(_as_events(source, pinned=attempt is not None), EVENT_STREAM)


async def _as_events(
    source: AsyncGenerator[Piece | Quiet | End, None], *, pinned: bool
) -> AsyncGenerator[bytes, None]:
    async with aclosing(source) as items:
        async for item in items:
            if isinstance(item, Piece):
                behind = item.offset + len(item.data)
                # Offsets are those of one attempt: a follower who named none must come back to the same.
                event_id = str(behind) if pinned else f"{behind}/{item.attempt}"
                data = {"offset": item.offset, "attempt": item.attempt, **encode_bytes(item.data)}
                yield format_event(data, event_id=event_id)
            elif isinstance(item, End):
                data = {
                    "reason": item.reason,
                    "code": item.code,
                    "offset": item.offset,
                    "attempt": item.attempt,
                }
                yield format_event(data, kind="end")
            else:
                yield HEARTBEAT


async def _as_bytes(source: AsyncGenerator[Piece | Quiet | End, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(source) as items:
        async for item in items:
            if isinstance(item, Piece):
                yield item.data
            elif isinstance(item, End) and not item.is_good:
                # Bytes alone cannot tell a fault from an end: the connection breaks, so that nobody is fooled.
                raise ConnectionAbortedError(item.reason)


def _read_event_id(text: str, attempt: int | None) -> tuple[int, int | None]:
    offset, _, number = text.partition("/")
    if not offset.isdecimal() or not (number.isdecimal() or not number) or len(text) > 40:
        raise InvalidInput("The Last-Event-ID is not one of a log.", where="header: last-event-id")
    return int(offset), attempt or (int(number) if number else None)
