"""A request's body on its way into the store: unframed, hashed as it passes, compared before anything is visible."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Protocol, TypeVar

from trainshed.api.obs.checksums import (
    announced_algorithm,
    make_checksum,
    read_checksum_header,
    read_content_md5,
)
from trainshed.api.obs.desk import Later
from trainshed.api.obs.errors import S3Error
from trainshed.api.obs.signatures.chunks import STREAMING, ChunkDecoder
from trainshed.api.obs.visit import Visit
from trainshed.store.embedded.together import ObjectReception, commit_together

__all__ = ["BodyReader", "receive", "receive_document"]

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

_UNSIGNED = "UNSIGNED-PAYLOAD"
_SHA256 = re.compile(r"[0-9a-f]{64}")
# A body that is taken as a whole; a thousand of them at once must fit into memory.
_SMALL = 1 << 18


class Receiver(Protocol[T_co]):
    """An object or a part that takes bytes."""

    def write(self, data: bytes) -> None: ...

    def commit(self, *, expected_md5: str = ..., attributes: dict[str, str] | None = ...) -> T_co: ...

    def abort(self) -> None: ...


class BodyReader:
    """Unpacks and checks a body. Made after the signature was checked, because chunks continue from it."""

    def __init__(self, visit: Visit, *, has_checksum: bool = True) -> None:
        headers, kind = visit.headers, visit.proof.payload_hash
        if visit.proof.seed is None and headers.get("x-amz-content-sha256", "").startswith("STREAMING-"):
            # Chunks may come without any signature, but must not be taken for the object's own bytes.
            kind = headers["x-amz-content-sha256"]
        self._decoder = ChunkDecoder(kind, visit.proof.seed) if kind in STREAMING else None
        self._sha256 = None
        if kind not in STREAMING and kind != _UNSIGNED:
            if not _SHA256.fullmatch(kind):
                raise S3Error(
                    "InvalidArgument",
                    "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-… or a valid sha256 value.",
                )
            self._expected_sha256 = kind
            self._sha256 = hashlib.sha256()
        self.expected_md5 = read_content_md5(headers.get("content-md5", ""))
        self._algorithm = announced_algorithm(headers) if has_checksum else ""
        self._checksum = make_checksum(self._algorithm) if self._algorithm else None
        value = headers.get(f"x-amz-checksum-{self._algorithm}", "")
        self._expected = read_checksum_header(self._algorithm, value) if value else ""
        self.size = self._read_size(visit)
        self._total = 0

    def _read_size(self, visit: Visit) -> int | None:
        name = "x-amz-decoded-content-length" if self._decoder else "content-length"
        text = visit.headers.get(name, "")
        if text:
            if not (text.isascii() and text.isdigit() and len(text) < 18):
                raise S3Error("InvalidArgument", f"The header {name} is no length.")
            return int(text)
        if self._decoder is not None or "chunked" not in visit.headers.get("transfer-encoding", ""):
            raise S3Error("MissingContentLength", "You must provide the Content-Length HTTP header.")
        return None

    def take(self, data: bytes) -> bytes:
        """The bytes that a piece of the body carries."""
        if self._decoder is not None:
            data = self._decoder.feed(data)
        self._total += len(data)
        if self._sha256 is not None:
            self._sha256.update(data)
        if self._checksum is not None:
            self._checksum.update(data)
        return data

    def finish(self) -> dict[str, str]:
        """Refuse a body that is not what was announced; returns its checksum, to be kept with the object."""
        if self._decoder is not None:
            self._decoder.finish()
            trailer = f"x-amz-checksum-{self._algorithm}"
            if self._algorithm and not self._expected:
                if trailer not in self._decoder.trailers:
                    raise S3Error("MalformedTrailerError", f"The trailer {trailer} is missing.")
                self._expected = read_checksum_header(self._algorithm, self._decoder.trailers[trailer])
        if self.size is not None and self._total != self.size:
            raise S3Error(
                "IncompleteBody",
                "You did not provide the number of bytes specified by the Content-Length HTTP header.",
            )
        if self._sha256 is not None and not hmac.compare_digest(
            self._sha256.hexdigest(), self._expected_sha256
        ):
            raise S3Error(
                "XAmzContentSHA256Mismatch",
                "The provided 'x-amz-content-sha256' header does not match what was computed.",
            )
        if self._checksum is None:
            return {}
        actual = base64.b64encode(self._checksum.digest()).decode()
        if actual != self._expected:
            raise S3Error(
                "BadDigest",
                f"The {self._algorithm.upper()} you specified did not match the calculated checksum.",
            )
        return {f"checksum-{self._algorithm}": actual}


async def receive(
    visit: Visit, begin: Callable[[BodyReader], Receiver[T]], *, is_object: bool = False
) -> tuple[T, dict[str, str]]:
    """Put a body into what `begin` opens (an object, or a part of one); returns what became of it, and its checksum."""
    exchange = visit.exchange

    def start() -> tuple[BodyReader, Receiver[T]]:
        reader = BodyReader(visit)
        return reader, begin(reader)

    if 0 < _content_length(visit) <= _SMALL:
        # Most objects are small: one thread does it all in one go.
        body = await exchange.whole_body()

        def store() -> tuple[T, dict[str, str]] | Later[tuple[T, dict[str, str]]]:
            reader, target = start()
            try:
                reception: object = target
                data = reader.take(body)
                (reception.write_last if isinstance(reception, ObjectReception) else target.write)(data)
                checksum = reader.finish()
                if isinstance(reception, ObjectReception):
                    # Those that come at the same time are made durable together.
                    whole = reception.finish(expected_md5=reader.expected_md5, attributes=checksum)
                    return Later(whole, commit_together, lambda info: (info, checksum))
                return target.commit(expected_md5=reader.expected_md5, attributes=checksum), checksum
            except BaseException:
                target.abort()
                raise

        # What makes an object durable is done later; what makes a part so, is done here and takes its time.
        return await visit.do(store, is_prompt=is_object)
    reader, target = await visit.do(start)

    def write(piece: bytes) -> None:
        target.write(reader.take(piece))

    def finish(last: bytes) -> tuple[T, dict[str, str]]:
        write(last)
        checksum = reader.finish()
        return target.commit(expected_md5=reader.expected_md5, attributes=checksum), checksum

    return await exchange.hand_on(write, finish, target.abort)


def _content_length(visit: Visit) -> int:
    text = visit.headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 18 else 0


async def receive_document(visit: Visit, *, has_checksum: bool = True) -> bytes:
    """A short body as a whole, with all that was announced of it checked. (Without `has_checksum` the checksum
    in the headers is that of something else.)"""
    await visit.do(lambda: None)
    body = await visit.document()
    if not body and "content-length" not in visit.headers:
        return b""

    def check() -> bytes:
        reader = BodyReader(visit, has_checksum=has_checksum)
        data = reader.take(body)
        reader.finish()
        if (
            reader.expected_md5
            and hashlib.md5(data, usedforsecurity=False).hexdigest() != reader.expected_md5
        ):
            raise S3Error("BadDigest", "The Content-MD5 you specified did not match what we received.")
        return data

    return await visit.exchange.in_thread(check)
