"""What every signature scheme works on: the request as it came over the wire, and whose it claims to be."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from trainshed.api.obs.errors import S3Error

__all__ = [
    "MAX_SKEW_SECONDS",
    "Claim",
    "SignedRequest",
    "check_skew",
    "is_any",
    "mismatch",
    "read_epoch",
    "read_http_date",
    "read_iso_date",
    "split_query",
]

MAX_SKEW_SECONDS = 15 * 60
_ISO = re.compile(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z", re.ASCII)


@dataclass(slots=True)
class SignedRequest:
    """A request before anything of it was interpreted, but for the bucket that its host name may hold."""

    method: str
    # As on the wire, percent signs and all.
    path: str
    query: str
    # Lower-case names; a header that came several times is joined by commas.
    headers: Mapping[str, str]
    # The bucket in the host name, or empty.
    host_bucket: str = ""

    def header(self, name: str) -> str:
        """A header, or nothing."""
        return self.headers.get(name, "")


@dataclass(frozen=True)
class Claim:
    """Whose a request claims to be, and the signature that has to prove it."""

    access_key: str
    signature: str
    # The moment at which it was signed, in seconds; 0 where a scheme has only an end.
    signed_at: float
    # The moment after which it is worth nothing; None for a signature that only the skew bounds.
    expires_at: float | None = None


def split_query(query: str) -> list[tuple[str, str, bool]]:
    """The decoded parameters in their order: name, value, and whether there was a `=`."""
    pairs: list[tuple[str, str, bool]] = []
    if not query:
        return pairs
    for part in query.split("&"):
        if part:
            name, equals, value = part.partition("=")
            # What is no UTF-8 is kept as it is: the signature is over the bytes.
            pairs.append((_decode(name), _decode(value.replace("+", " ")), bool(equals)))
    return pairs


def _decode(text: str) -> str:
    return unquote_to_bytes(text.encode("latin-1")).decode("utf-8", "surrogateescape")


@lru_cache(maxsize=64)
def read_iso_date(text: str) -> float | None:
    """Seconds for `20130524T000000Z`."""
    found = _ISO.fullmatch(text)
    if found is None:
        return None
    # By hand: every request has such a date, and strptime takes as long as checking the whole signature.
    year, month, day, hour, minute, second = map(int, found.groups())
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    except ValueError:
        return None


def read_http_date(text: str) -> float | None:
    """Seconds for `Fri, 24 May 2013 00:00:00 GMT`."""
    try:
        found = parsedate_to_datetime(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def read_epoch(text: str) -> float | None:
    """Seconds for a plain number, within reason."""
    return float(text) if text.isascii() and text.isdigit() and len(text) <= 12 else None


def check_skew(signed_at: float, now: float) -> None:
    """Refuse a request whose clock is too far from ours: it may be one that somebody recorded."""
    if abs(now - signed_at) > MAX_SKEW_SECONDS:
        raise S3Error(
            "RequestTimeTooSkewed",
            "The difference between the request time and the current time is too large.",
        )


def is_any(signature: str, expected: Iterable[str]) -> bool:
    """Whether the signature is one of those that are right, compared in constant time."""
    given = signature.encode("utf-8", "surrogateescape")
    found = False
    for candidate in expected:
        found |= hmac.compare_digest(given, candidate.encode())
    return found


def mismatch() -> S3Error:
    """The error for a signature that is not the right one."""
    return S3Error(
        "SignatureDoesNotMatch",
        "The request signature we calculated does not match the signature you provided."
        " Check your key and signing method.",
    )
