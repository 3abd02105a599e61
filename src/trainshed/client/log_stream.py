"""A log, byte for byte: read to its present end or followed to its real one, across broken connections."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

from trainshed.client.event_stream import ServerEvent, parse_events
from trainshed.client.transport import Transport
from trainshed.model.errors import TrainshedError, Unavailable

__all__ = ["LogStream", "read_end", "resume_events"]

_GOOD_ENDS = ("ended", "so_far", "not_started")
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 3.0


class LogStream:
    """An iterator over the bytes of one log. After it, `reason` says why the log ended.

    A connection that breaks is opened again behind the last byte that came: no byte is lost or doubled.
    """

    def __init__(
        self,
        transport: Transport,
        path: str,
        *,
        attempt: int | None,
        offset: int,
        follow: bool,
        patience: float,
    ) -> None:
        self._transport = transport
        self._path = path
        self._follow = follow
        self._patience = patience
        self.attempt = attempt
        # The offset behind the last byte that was handed out.
        self.offset = offset
        # Why there is no more: empty until the end was reached.
        self.reason = ""
        # What the end event said besides.
        self.ending: dict[str, Any] = {}

    def __iter__(self) -> Iterator[bytes]:
        for event in resume_events(self._transport, self._path, self._query, self._patience):
            data = json.loads(event.data)
            if event.kind == "end":
                if data.get("code") not in _GOOD_ENDS:
                    raise read_end(data)
                self.reason = str(data.get("reason", ""))
                self.ending = data
                return
            piece = base64.b64decode(data["base64"]) if "base64" in data else data["text"].encode("utf-8")
            self.attempt = data.get("attempt", self.attempt)
            if piece:
                self.offset = int(data["offset"]) + len(piece)
                yield piece

    def lines(self) -> Iterator[str]:
        """The log as lines of text without their ends; bytes that are not UTF-8 become �."""
        rest = b""
        for piece in self:
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                yield line.removesuffix(b"\r").decode("utf-8", errors="replace")
        if rest:
            yield rest.decode("utf-8", errors="replace")

    def _query(self) -> dict[str, Any]:
        return {"offset": self.offset, "follow": "true" if self._follow else "false", "attempt": self.attempt}


def read_end(data: dict[str, Any]) -> TrainshedError:
    """The error with which a platform ended a stream before its end."""
    return TrainshedError(str(data.get("reason", "")), code=str(data.get("code", "")) or "stream_ended")


def resume_events(transport: Transport, path: str, query: Any, patience: float) -> Iterator[ServerEvent]:
    """Events of a stream; when the connection breaks it is opened again with what `query()` says then.

    The stream is over when the caller stops reading. Without any sign of life for `patience` seconds the last
    error is raised.
    """
    pause = _FIRST_PAUSE_SECONDS
    alive_at = time.monotonic()
    while True:
        fault: Unavailable | None = None
        try:
            with transport.stream(path, headers={"Accept": "text/event-stream"}, query=query()) as pieces:
                for event in parse_events(pieces):
                    alive_at = time.monotonic()
                    pause = _FIRST_PAUSE_SECONDS
                    if event is not None:
                        yield event
        except Unavailable as lost:
            fault = lost
        if time.monotonic() - alive_at > patience:
            raise fault or Unavailable(
                f"The stream from {transport.url} ends again and again before its end.",
                hint="Try again later.",
                code="connection_lost",
            )
        time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
