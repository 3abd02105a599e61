"""Bodies in the aws-chunked encoding: the bytes without their framing, each chunk's signature compared.

A chunk is `<hex size>[;chunk-signature=<hex>]\\r\\n<bytes>\\r\\n`; the last one is empty, and trailers may follow.
Nothing is held back: bytes of a chunk are given out before its signature is known to be right, so that whoever
takes them must not make anything visible before `finish` returned.
"""

from __future__ import annotations

import hashlib
import hmac

from trainshed.api.obs.errors import S3Error
from trainshed.api.obs.signatures.aws_v4 import ALGORITHM, Seed
from trainshed.api.obs.signatures.claim import mismatch

__all__ = ["SIGNED", "SIGNED_TRAILER", "STREAMING", "UNSIGNED_TRAILER", "ChunkDecoder"]

SIGNED = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
SIGNED_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
UNSIGNED_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
STREAMING = frozenset({SIGNED, SIGNED_TRAILER, UNSIGNED_TRAILER})

_EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
_MAX_LINE = 1024
_MAX_CHUNK = 5 << 30
_MAX_TRAILERS = 16


class ChunkDecoder:
    """Takes the body piece by piece, and gives back what it carries."""

    def __init__(self, kind: str, seed: Seed | None) -> None:
        self._seed = seed if kind != UNSIGNED_TRAILER else None
        if kind != UNSIGNED_TRAILER and seed is None:
            raise S3Error("InvalidRequest", "A streaming body needs a request that is signed with version 4.")
        self._with_trailer = kind != SIGNED
        self._signature = seed.signature if seed else ""
        self._held = bytearray()
        self._state = "size"
        self._left = 0
        self._claimed = ""
        self._hash = hashlib.sha256()
        self.trailers: dict[str, str] = {}
        self.size = 0

    def feed(self, data: bytes) -> bytes:
        """The bytes within this piece of the body."""
        self._held += data
        out = bytearray()
        while self._step(out):
            pass
        return bytes(out)

    def finish(self) -> None:
        """Refuse a body that broke off before its last chunk."""
        if self._state == "trailer" and not self._held:
            self._take_trailer("")  # Some clients leave the last empty line out.
        if self._state != "end":
            raise S3Error("IncompleteBody", "The body ended before its last chunk.")

    def _step(self, out: bytearray) -> bool:
        if self._state == "data":
            taken = self._held[: self._left]
            if not taken:
                return False
            del self._held[: len(taken)]
            self._left -= len(taken)
            self.size += len(taken)
            if self._seed is not None:
                self._hash.update(taken)
            out += taken
            if self._left == 0:
                self._state = "data-end"
            return True
        if self._state == "end":
            if self._held:
                raise S3Error("InvalidRequest", "There are bytes behind the last chunk.")
            return False
        line = self._take_line()
        if line is None:
            return False
        if self._state == "size":
            self._begin_chunk(line)
        elif self._state == "data-end":
            if line:
                raise _malformed()
            self._check_chunk()
            self._state = "size"
        else:
            self._take_trailer(line)
        return True

    def _take_line(self) -> str | None:
        at = self._held.find(b"\r\n", 0, _MAX_LINE)
        if at < 0:
            if len(self._held) >= _MAX_LINE:
                raise _malformed()
            return None
        line = self._held[:at].decode("latin-1")
        del self._held[: at + 2]
        return line

    def _begin_chunk(self, line: str) -> None:
        size, _, extension = line.partition(";")
        try:
            if not size or size.strip("0123456789abcdefABCDEF"):
                raise ValueError
            self._left = int(size, 16)
        except ValueError:
            raise _malformed() from None
        if self._left > _MAX_CHUNK:
            raise S3Error("EntityTooLarge", "A chunk is larger than an object may be.")
        name, _, value = extension.partition("=")
        self._claimed = value.strip() if name.strip() == "chunk-signature" else ""
        self._hash = hashlib.sha256()
        if self._left:
            self._state = "data"
            return
        # The empty chunk has no bytes and no line end of its own: trailers or the end follow.
        self._check_chunk()
        self._state = "trailer"

    def _check_chunk(self) -> None:
        if self._seed is None:
            return
        text = (
            f"{ALGORITHM}-PAYLOAD\n{self._seed.timestamp}\n{self._seed.scope}\n{self._signature}\n"
            f"{_EMPTY_SHA256}\n{self._hash.hexdigest()}"
        )
        self._signature = self._compare(text, self._claimed)

    def _take_trailer(self, line: str) -> None:
        if line:
            if not self._with_trailer or len(self.trailers) >= _MAX_TRAILERS:
                raise S3Error("MalformedTrailerError", "There are trailers that were not announced.")
            name, colon, value = line.partition(":")
            name = name.strip().lower()
            if not colon or not name or name in self.trailers:
                raise S3Error("MalformedTrailerError", "A trailer is not of the form name:value.")
            self.trailers[name] = value.strip()
            return
        self._state = "end"
        if self._seed is not None and self._with_trailer:
            claimed = self.trailers.pop("x-amz-trailer-signature", "")
            lines = "".join(f"{name}:{value}\n" for name, value in self.trailers.items())
            digest = hashlib.sha256(lines.encode("latin-1")).hexdigest()
            text = f"{ALGORITHM}-TRAILER\n{self._seed.timestamp}\n{self._seed.scope}\n{self._signature}\n{digest}"
            self._compare(text, claimed)

    def _compare(self, text: str, claimed: str) -> str:
        assert self._seed is not None
        expected = hmac.new(self._seed.key, text.encode(), hashlib.sha256).hexdigest()
        if not hmac.compare_digest(expected.encode(), claimed.encode("utf-8", "replace")):
            raise mismatch()
        return expected


def _malformed() -> S3Error:
    return S3Error("InvalidRequest", "The body is not in the aws-chunked encoding that was announced.")
