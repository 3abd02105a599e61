"""The head of a request, read by llhttp (through httptools) and judged strictly.

Two parties that disagree about where a request ends are how requests get smuggled past a proxy. So whatever leaves
room for a second opinion is refused: two lengths, a length beside chunks, line ends without a carriage return, folded
lines, an encoding other than `chunked`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

__all__ = ["BadHead", "Head", "parse_head"]

# A length with more digits is none that anybody means.
_LONGEST_LENGTH = 18
_MOST_HEADERS = 256
_FOLDED = re.compile(rb"\r\n[ \t]")


# Names of headers as they came, and in lower case: there are not many.
_names: dict[bytes, str] = {}
_MOST_NAMES = 1024


class BadHead(Exception):
    """A request that cannot be taken, and the status that says so."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(slots=True)
class Head:
    """What came before the body."""

    method: str
    # As on the wire, percent signs and all.
    path: str
    query: str
    # Lower-case names; a header that came several times is joined by commas.
    headers: dict[str, str]
    # The body's length; None when it comes in chunks.
    length: int | None
    keeps_alive: bool
    is_old: bool
    expects_continue: bool


class _Reader:
    """Collects what the parser finds."""

    __slots__ = ("is_complete", "pairs", "target")

    def __init__(self) -> None:
        self.target = b""
        self.pairs: list[tuple[bytes, bytes]] = []
        self.is_complete = False

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.pairs.append((name, value))

    def on_headers_complete(self) -> None:
        self.is_complete = True


def parse_head(data: bytes) -> Head:
    """Read a head, which ends with the first empty line of `data`, where `data` ends too."""
    reader = _Reader()
    parser = HttpRequestParser(reader)
    is_early = False
    try:
        # The last byte comes alone: a parser that is done before it has seen another end than we have.
        parser.feed_data(data[:-1])
        is_early = reader.is_complete
        parser.feed_data(data[-1:])
    except HttpParserUpgrade:
        pass  # Nothing to change to is offered here, so that the request is a plain one.
    except HttpParserError:
        raise BadHead(400, "This is no HTTP request.") from None
    if is_early or not reader.is_complete or _FOLDED.search(data):
        raise BadHead(400, "The lines of the request's head do not end as they should.")
    if len(reader.pairs) > _MOST_HEADERS:
        raise BadHead(431, "The request has too many headers.")
    headers: dict[str, str] = {}
    for name, value in reader.pairs:
        known, text = _names.get(name) or _know(name), value.decode("latin-1")
        if text.endswith((" ", "\t")):
            text = text.rstrip(" \t")
        if known in headers:
            if known in ("content-length", "transfer-encoding", "host"):
                raise BadHead(400, f"The header {known} may come only once.")
            text = f"{headers[known]},{text}"
        headers[known] = text
    version = parser.get_http_version()
    if version not in ("1.0", "1.1"):
        raise BadHead(505, "HTTP/1.1 is spoken here.")
    is_old = version == "1.0"
    path, query = _split_target(reader.target.decode("latin-1"), headers)
    if "host" not in headers and not is_old:
        raise BadHead(400, "The header host is missing.")
    expects = headers.get("expect", "").lower()
    if expects and expects != "100-continue":
        raise BadHead(417, "Only 100-continue can be expected.")
    return Head(
        parser.get_method().decode("latin-1"),
        path,
        query,
        headers,
        _read_length(headers, is_old=is_old),
        _keeps_alive(headers, is_old=is_old),
        is_old,
        bool(expects) and not is_old,
    )


def _know(name: bytes) -> str:
    known = name.decode("latin-1").lower()
    if len(_names) < _MOST_NAMES and len(name) < 64:
        _names[name] = known
    return known


def _split_target(target: str, headers: dict[str, str]) -> tuple[str, str]:
    if not target.startswith("/") and target != "*":
        # As a proxy is asked: the address goes before the header.
        scheme, mark, rest = target.partition("://")
        if not mark or scheme.lower() not in ("http", "https"):
            raise BadHead(400, "The target of the request is no path.")
        host, slash, place = rest.partition("/")
        if "?" in host or not host:
            raise BadHead(400, "The target of the request is no path.")
        headers["host"] = host
        target = slash + place or "/"
    path, _, query = target.partition("?")
    return path, query


def _keeps_alive(headers: dict[str, str], *, is_old: bool) -> bool:
    words = headers.get("connection")
    if not words:
        return not is_old
    known = {word.strip().lower() for word in words.split(",")}
    return "keep-alive" in known if is_old else "close" not in known


def _read_length(headers: dict[str, str], *, is_old: bool) -> int | None:
    length, encoding = headers.get("content-length"), headers.get("transfer-encoding")
    if encoding is not None:
        if length is not None or is_old:
            raise BadHead(400, "A body comes either with a length or in chunks.")
        if encoding.lower() != "chunked":
            raise BadHead(501, "Bodies come as they are, or in chunks.")
        return None
    if length is None:
        return 0
    if not (length.isascii() and length.isdigit() and len(length) <= _LONGEST_LENGTH):
        raise BadHead(400, "The header content-length is no length.")
    return int(length)
