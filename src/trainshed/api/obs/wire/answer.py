"""The head of an answer as it goes over the wire."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from trainshed.api.obs.wire.head import BadHead

__all__ = ["render_head", "render_refusal"]

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}
_BODILESS = frozenset([204, 304])


def render_head(status: int, headers: Mapping[str, str], date: str, connection: str) -> bytes:
    """The lines of a head, with the date's and that of the connection, if it has one."""
    lines = [_STATUS_LINES.get(status) or f"HTTP/1.1 {status} \r\n"]
    for name, value in headers.items():
        if name != "connection" and not (name == "content-length" and status in _BODILESS):
            lines.append(f"{name}: {value}\r\n")
    lines.append(date)
    if connection:
        lines.append(f"connection: {connection}\r\n")
    head = "".join(lines)
    if head.count("\n") != len(lines) or head.count("\r") != len(lines):
        raise ValueError("a header has a line end in it")
    return (head + "\r\n").encode("latin-1")


def render_refusal(error: BadHead, date: str) -> bytes:
    """The whole answer to a request that could not be read."""
    body = error.reason.encode() + b"\n"
    headers = {"content-type": "text/plain", "content-length": str(len(body))}
    return render_head(error.status, headers, date, "close") + body
