"""Checksums that clients send with a body, or behind it: each is computed as the bytes pass, and compared."""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from trainshed.api.obs.errors import S3Error

__all__ = [
    "ALGORITHMS",
    "Checksum",
    "announced_algorithm",
    "check_algorithm",
    "choose_checksum_type",
    "combine_checksums",
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
        # The library takes nothing that could change under its hands, as bodies come.
        self._value = self._extend(self._value, bytes(data))

    def digest(self) -> bytes:
        return self._value.to_bytes(4, "big")


class _Crc64Nvme:
    def __init__(self) -> None:
        self._extend = _crc_model("CRC64-NVME").calc
        self._value = 0

    def update(self, data: bytes, /) -> None:
        self._value = self._extend(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(8, "big")


@functools.cache
def _crc_model(name: str) -> Any:
    import anycrc  # type: ignore[import-untyped]

    return anycrc.Model(name)


# Name in headers -> length of the digest, and what computes it.
ALGORITHMS: dict[str, tuple[int, Callable[[], Checksum]]] = {
    "crc32": (4, _Crc32),
    "crc32c": (4, _Crc32c),
    "crc64nvme": (8, _Crc64Nvme),
    "sha1": (20, lambda: hashlib.sha1(usedforsecurity=False)),
    "sha256": (32, hashlib.sha256),
}
_PREFIX = "x-amz-checksum-"
# Headers that begin like a checksum and are none.
_NO_SUMS = ("algorithm", "mode", "type")
# The checksums of which that of a whole follows from those of its parts.
_MODELS = {"crc32": "CRC32-ISO-HDLC", "crc32c": "CRC32-ISCSI", "crc64nvme": "CRC64-NVME"}


def make_checksum(algorithm: str) -> Checksum:
    """A new checksum of that kind."""
    return ALGORITHMS[algorithm][1]()


def announced_algorithm(headers: Mapping[str, str]) -> str:
    """The checksum that comes with the body or behind it; empty when there is none. One that we cannot
    verify is refused: a client that sends it counts on it."""
    trailers = [name.strip() for name in headers.get("x-amz-trailer", "").lower().split(",")]
    named = [name.removeprefix(_PREFIX) for name in (*headers, *trailers) if name.startswith(_PREFIX)]
    found = [check_algorithm(name) for name in named if name not in _NO_SUMS]
    if len(found) > 1:
        raise S3Error("InvalidRequest", "Expecting a single x-amz-checksum- header.")
    return found[0] if found else ""


def check_algorithm(name: str) -> str:
    """The name of a checksum that we can verify, as headers have it."""
    if name.lower() not in ALGORITHMS:
        known = ", ".join(sorted(algorithm.upper() for algorithm in ALGORITHMS))
        raise S3Error(
            "InvalidRequest",
            f"Checksum algorithm provided is unsupported. Please try again with any of the valid types: [{known}]",
        )
    return name.lower()


def combine_checksums(algorithm: str, parts: Sequence[tuple[str, int]], kind: str) -> str:
    """The checksum of an object from those of its parts (and their sizes): that of the whole (`FULL_OBJECT`),
    or that of the checksums with their number behind it (`COMPOSITE`)."""
    digests = [_decode(value) for value, _ in parts]
    if kind == "COMPOSITE":
        combined = make_checksum(algorithm)
        combined.update(b"".join(digests))
        return f"{base64.b64encode(combined.digest()).decode()}-{len(parts)}"
    model, whole = _crc_model(_MODELS[algorithm]), 0
    for digest, (_, size) in zip(digests, parts, strict=True):
        whole = model.combine(whole, int.from_bytes(digest, "big"), size)
    return base64.b64encode(whole.to_bytes(ALGORITHMS[algorithm][0], "big")).decode()


def choose_checksum_type(algorithm: str, asked: str) -> str:
    """How the checksum of an object in parts is made, as it was asked for or else as S3 does."""
    can_be_whole = algorithm in _MODELS
    asked = asked.upper()
    if asked not in ("", "COMPOSITE", "FULL_OBJECT"):
        raise S3Error("InvalidRequest", "Value for x-amz-checksum-type header is invalid.")
    if (asked == "FULL_OBJECT" and not can_be_whole) or (asked == "COMPOSITE" and algorithm == "crc64nvme"):
        raise S3Error(
            "InvalidRequest",
            f"The {asked} checksum type cannot be used with the {algorithm} checksum algorithm.",
        )
    return asked or ("FULL_OBJECT" if algorithm == "crc64nvme" else "COMPOSITE")


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
