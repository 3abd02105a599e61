"""Checksums that clients send with a body, or behind it: each is computed as the bytes pass, and compared."""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from collections.abc import Callable, Mapping
from typing import Protocol

from trainshed.api.obs.errors import S3Error

__all__ = [
    "ALGORITHMS",
    "Checksum",
    "announced_algorithm",
    "make_checksum",
    "read_checksum_header",
    "read_content_md5",
]


class Checksum(Protocol):
    """Takes bytes, and tells their checksum."""

    def update(self, data: bytes, /) -> object: ...

    def digest(self) -> bytes: ...


class _Crc32:
    def __init__(self) -> None:
        self._value = 0

    def update(self, data: bytes, /) -> None:
        self._value = zlib.crc32(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(4, "big")


class _Crc32c:
    def __init__(self) -> None:
        import google_crc32c

        self._extend = google_crc32c.extend
        self._value = 0

    def update(self, data: bytes, /) -> None:
        self._value = self._extend(self._value, data)

    def digest(self) -> bytes:
        return self._value.to_bytes(4, "big")


# Name in headers -> length of the digest, and what computes it.
ALGORITHMS: dict[str, tuple[int, Callable[[], Checksum]]] = {
    "crc32": (4, _Crc32),
    "crc32c": (4, _Crc32c),
    "sha1": (20, lambda: hashlib.sha1(usedforsecurity=False)),
    "sha256": (32, hashlib.sha256),
}
_PREFIX = "x-amz-checksum-"


def make_checksum(algorithm: str) -> Checksum:
    """A new checksum of that kind."""
    return ALGORITHMS[algorithm][1]()


def announced_algorithm(headers: Mapping[str, str]) -> str:
    """The checksum that comes with the body or behind it; empty when there is none that we know."""
    trailer = headers.get("x-amz-trailer", "").strip().lower()
    named = [name.removeprefix(_PREFIX) for name in headers if name.startswith(_PREFIX)]
    found = [name for name in named if name in ALGORITHMS]
    if len(found) > 1:
        raise S3Error("InvalidRequest", "Expecting a single x-amz-checksum- header.")
    if trailer.startswith(_PREFIX) and trailer.removeprefix(_PREFIX) in ALGORITHMS:
        if found:
            raise S3Error("InvalidRequest", "Expecting a single x-amz-checksum- header.")
        return trailer.removeprefix(_PREFIX)
    return found[0] if found else ""


def read_checksum_header(algorithm: str, value: str) -> str:
    """The checksum as it was sent, if it can be one."""
    digest = _decode(value)
    if len(digest) != ALGORITHMS[algorithm][0]:
        raise S3Error("InvalidRequest", f"Value for {_PREFIX}{algorithm} header is invalid.")
    return base64.b64encode(digest).decode()


def read_content_md5(value: str) -> str:
    """The MD5 of a `Content-MD5` header in hexadecimal, or nothing without one."""
    if not value:
        return ""
    digest = _decode(value)
    if len(digest) != 16:
        raise S3Error("InvalidDigest", "The Content-MD5 you specified was invalid.")
    return digest.hex()


def _decode(value: str) -> bytes:
    try:
        return base64.b64decode(value.strip(), validate=True)
    except (binascii.Error, ValueError):
        return b""
