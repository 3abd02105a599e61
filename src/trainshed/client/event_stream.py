"""Server-sent events, read line by line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

__all__ = ["ServerEvent", "parse_events"]


@dataclass(frozen=True)
class ServerEvent:
    """One event: its kind, its id (where to resume behind it) and its data."""

    kind: str
    id: str
    data: str


def parse_events(pieces: Iterable[bytes]) -> Iterator[ServerEvent | None]:
    """Events in the order they come; None for a comment, which only says that the server is there."""
    kind, event_id, data = "message", "", list[str]()
    for line in _lines(pieces):
        if not line:
            if data:
                yield ServerEvent(kind, event_id, "\n".join(data))
            kind, data = "message", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not name:
            yield None
        elif name == "event":
            kind = value
        elif name == "id":
            event_id = value
        elif name == "data":
            data.append(value)


def _lines(pieces: Iterable[bytes]) -> Iterator[str]:
    # Only line feeds part lines: the text of a log may hold every other separator that splitlines knows.
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r").decode("utf-8", errors="replace")
