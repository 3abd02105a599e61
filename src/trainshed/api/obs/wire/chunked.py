"""A body that comes in chunks, unframed by llhttp."""

from __future__ import annotations

from httptools import HttpParserError, HttpRequestParser

__all__ = ["BadChunk", "ChunkedBody"]

# Whoever frames single bytes needs six for each; much more is no framing but something else.
_MOST_FRAMING = 16
_FREE_FRAMING = 64 << 10
# A head of our own: how the body is framed was decided before, and is not decided again.
_HEAD = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"


class BadChunk(Exception):
    """The framing is broken."""


class ChunkedBody:
    """Takes a chunked body and gives pieces of some size."""

    def __init__(self, piece_size: int) -> None:
        self._size = piece_size
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._fed = 0
        self._found = 0
        self.is_complete = False
        # Whether something came behind the body.
        self.has_more = False
        self._parser = HttpRequestParser(self)
        self._parser.feed_data(_HEAD)

    def feed(self, data: bytes) -> list[bytes]:
        """The pieces that are whole now; with the body's end, all that is left."""
        self._fed += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserError:
            if not self.is_complete:
                raise BadChunk from None
            self.has_more = True
        if self._fed - self._found > _FREE_FRAMING + _MOST_FRAMING * self._found:
            raise BadChunk
        if not self._held or (self._held_bytes < self._size and not self.is_complete):
            return []
        piece = b"".join(self._held)
        self._held, self._held_bytes = [], 0
        return [piece]

    # --- called by the parser ---

    def on_body(self, body: bytes) -> None:
        if self.is_complete:
            self.has_more = True
            return
        self._held.append(body)
        self._held_bytes += len(body)
        self._found += len(body)

    def on_message_complete(self) -> None:
        self.is_complete = True

    def on_message_begin(self) -> None:
        self.has_more = self.is_complete
